(** Incremental reduce: it is enough to correct the output at the interesting times.

    The output of a reduction is, at every time, a function of what the input accumulates there. When the input changes, the
    output is corrected at some times, each by the difference of what it should be and what it is. The interesting times are
    those of the new changes, and their least upper bounds with the times of entries, again and again. After these, the output is
    right at every time there is. *)
From Coq Require Import List ZArith Lia Bool.
Import ListNotations.
Open Scope Z_scope.

Section Reduce.

Variable T : Type.
Variable le : T -> T -> bool.
Variable lub : T -> T -> T.
Hypothesis le_refl : forall a, le a a = true.
Hypothesis le_trans : forall a b c, le a b = true -> le b c = true -> le a c = true.
Hypothesis le_antisym : forall a b, le a b = true -> le b a = true -> a = b.
Hypothesis lub_left : forall a b, le a (lub a b) = true.
Hypothesis lub_right : forall a b, le b (lub a b) = true.
Hypothesis lub_least : forall a b c, le a c = true -> le b c = true -> le (lub a b) c = true.

(** Values in, values out, and the function between, for one key. It sees counts only. *)
Variables V W : Type.
Variable f : (V -> Z) -> W -> Z.
Hypothesis f_counts : forall a b, (forall v, a v = b v) -> forall w, f a w = f b w.

(** A correction is kept as a table, where it is computed; which table makes no difference. *)
Variable memo : (W -> Z) -> W -> Z.
Hypothesis memo_same : forall g w, memo g w = g w.

(** Changes of counts, each with its time. *)
Definition changes X := list (T * (X -> Z)).

Fixpoint accumulate {X} (c : changes X) (t : T) (x : X) : Z :=
  match c with
  | [] => 0
  | (s, diff) :: rest => (if le s t then diff x else 0) + accumulate rest t x
  end.

Definition times {X} (c : changes X) : list T := map fst c.

(** The output is right at a time. *)
Definition right_at (input : changes V) (output : changes W) (t : T) : Prop :=
  forall w, accumulate output t w = f (accumulate input t) w.

(** Process times in turn: at each, the output gets what it lacks. *)
Fixpoint process (input : changes V) (ts : list T) (output : changes W) : changes W :=
  match ts with
  | [] => output
  | t :: rest => process input rest ((t, memo (fun w => f (accumulate input t) w - accumulate output t w)) :: output)
  end.

(** In a linear extension of the order: what comes later is never before. *)
Fixpoint linear (ts : list T) : Prop :=
  match ts with [] => True | t :: rest => (forall u, In u rest -> le u t = false) /\ linear rest end.

(** The interesting times: from the new ones, by least upper bounds with the times of entries. *)
Inductive interesting (new entries : list T) : T -> Prop :=
| interesting_new t : In t new -> interesting new entries t
| interesting_lub t h : interesting new entries t -> In h entries -> interesting new entries (lub t h).

Lemma accumulate_app {X} (a b : changes X) t x : accumulate (a ++ b) t x = accumulate a t x + accumulate b t x.
Proof. induction a as [| [s diff] a IH]; simpl; lia. Qed.

Lemma accumulate_same {X} (c : changes X) t u :
  (forall s, In s (times c) -> le s t = le s u) -> forall x, accumulate c t x = accumulate c u x.
Proof.
  intros H x. induction c as [| [s diff] c IH]; simpl; [reflexivity |].
  simpl in H. rewrite (H s) by now left. rewrite IH by (intros; apply H; now right). reflexivity.
Qed.

(** Processing adds corrections, at these times only. *)
Lemma process_adds input ts output :
  exists more, process input ts output = more ++ output /\ (forall s, In s (times more) <-> In s ts).
Proof.
  revert output. induction ts as [| t ts IH]; intros output; simpl.
  - exists []. split; [reflexivity | tauto].
  - destruct (IH ((t, memo (fun w => f (accumulate input t) w - accumulate output t w)) :: output)) as (more & -> & Hmore).
    exists (more ++ [(t, memo (fun w => f (accumulate input t) w - accumulate output t w))]). split.
    + now rewrite <- app_assoc.
    + intros s. unfold times in *. rewrite map_app, in_app_iff, Hmore. simpl. tauto.
Qed.

Lemma process_right input ts output t : linear ts -> In t ts -> right_at input (process input ts output) t.
Proof.
  revert output. induction ts as [| u ts IH]; intros output Hlinear Hin; [destruct Hin |].
  destruct Hlinear as [Hlater Hlin].
  destruct Hin as [-> | Hin]; [| now apply IH].
  simpl. destruct (process_adds input ts ((t, memo (fun w => f (accumulate input t) w - accumulate output t w)) :: output))
    as (more & -> & Hmore).
  intros w. rewrite accumulate_app. simpl. rewrite le_refl, memo_same.
  assert (accumulate more t w = 0); [| lia].
  assert (Hno : forall s, In s (times more) -> le s t = false) by (intros s Hs; apply Hlater; now apply Hmore).
  clear - Hno. induction more as [| [s diff] more IH]; simpl; [reflexivity |].
  simpl in Hno. rewrite (Hno s) by now left. rewrite IH; [reflexivity | intros; apply Hno; now right].
Qed.

(** The least upper bound of a time and all entries at or before [t]. *)
Fixpoint bound (start : T) (entries : list T) (t : T) : T :=
  match entries with
  | [] => start
  | h :: rest => let b := bound start rest t in if le h t then lub b h else b
  end.

Lemma bound_below start entries t : le start t = true -> le (bound start entries t) t = true.
Proof.
  intros H. induction entries as [| h rest IH]; simpl; [assumption |].
  destruct (le h t) eqn:Hh; [now apply lub_least | assumption].
Qed.

Lemma bound_above start entries t h : In h entries -> le h t = true -> le h (bound start entries t) = true.
Proof.
  intros Hin Hle. induction entries as [| g rest IH]; [destruct Hin |]. simpl.
  destruct Hin as [-> | Hin].
  - rewrite Hle. apply lub_right.
  - destruct (le g t); [apply le_trans with (bound start rest t); [now apply IH | apply lub_left] | now apply IH].
Qed.

Lemma bound_interesting new entries rest t start :
  (forall h, In h rest -> In h entries) -> In start new -> interesting new entries (bound start rest t).
Proof.
  intros Hsub Hstart. induction rest as [| h rest IH]; simpl; [now constructor |].
  assert (Hrest : interesting new entries (bound start rest t)) by (apply IH; intros; apply Hsub; now right).
  destruct (le h t); [apply interesting_lub; [assumption | apply Hsub; now left] | assumption].
Qed.

Lemma interesting_new_below new entries t : interesting new entries t -> exists n, In n new /\ le n t = true.
Proof.
  induction 1 as [t Hin | t h _ (n & Hn & Hle) _].
  - exists t. auto.
  - exists n. split; [assumption | apply le_trans with t; [assumption | apply lub_left]].
Qed.

Lemma interesting_least new entries x :
  interesting new entries x -> (forall n, In n new -> In n entries) ->
  forall t j, (forall h, In h entries -> le h t = true -> le h j = true) -> le x t = true -> le x j = true.
Proof.
  intros Hx Hnew t j Hj. induction Hx as [x Hin | x h _ IH Hh]; intros Hle.
  - apply Hj; [now apply Hnew | assumption].
  - apply lub_least; [apply IH | apply Hj; [assumption |]]; apply le_trans with (lub x h); auto.
Qed.

(** Where the output was right everywhere, and its corrections at the interesting times are made in a linear extension of the
    order, it is right everywhere again: at every time, interesting or not. [entries] has the times of all changes of the input,
    new ones too; it may have more, as the times at which the output changed. *)
Theorem incremental_reduce old new output entries ts :
  (forall t, right_at old output t) ->
  (forall s, In s (times (new ++ old)) -> In s entries) ->
  (forall t, In t ts <-> interesting (times new) entries t) -> linear ts ->
  forall t, right_at (new ++ old) (process (new ++ old) ts output) t.
Proof.
  intros Hold Hentries Hts Hlin t.
  assert (Hnew : forall n, In n (times new) -> In n entries).
  { intros n Hn. apply Hentries. unfold times in *. rewrite map_app, in_app_iff. auto. }
  destruct (process_adds (new ++ old) ts output) as (more & Heq & Hmore).
  destruct (existsb (fun n => le n t) (times new)) eqn:Hsome.
  - (* something new is at or before [t]: go down to an interesting time that sees the same *)
    apply existsb_exists in Hsome. destruct Hsome as (n & Hn & Hnt).
    set (j := bound n entries t).
    assert (Hj : In j ts) by (apply Hts, bound_interesting; auto).
    assert (Hjt : le j t = true) by now apply bound_below.
    assert (Hup : forall h, In h entries -> le h t = true -> le h j = true) by (intros; now apply bound_above).
    pose proof (process_right (new ++ old) ts output j Hlin Hj) as Hright.
    assert (Hin : forall v, accumulate (new ++ old) t v = accumulate (new ++ old) j v).
    { apply accumulate_same. intros s Hs. apply eq_true_iff_eq. split; intros H.
      - apply Hup; [now apply Hentries | assumption].
      - now apply le_trans with j. }
    assert (Holdsame : forall v, accumulate old t v = accumulate old j v).
    { apply accumulate_same. intros s Hs. apply eq_true_iff_eq. split; intros H.
      - apply Hup; [| assumption]. apply Hentries. unfold times in *. rewrite map_app, in_app_iff. auto.
      - now apply le_trans with j. }
    intros w. rewrite (f_counts _ _ Hin w), <- (Hright w), Heq, !accumulate_app.
    f_equal.
    + apply accumulate_same. intros s Hs. apply eq_true_iff_eq. split; intros H.
      * apply (interesting_least (times new) entries s) with (t := t); try assumption. apply Hts. now apply Hmore.
      * now apply le_trans with j.
    + rewrite (Hold t w), (Hold j w). now apply f_counts.
  - (* nothing new is at or before [t]: nothing changed there *)
    assert (Hno : forall n, In n (times new) -> le n t = false).
    { intros n Hn. destruct (le n t) eqn:H; [| reflexivity].
      assert (existsb (fun n => le n t) (times new) = true) by (apply existsb_exists; exists n; auto). congruence. }
    assert (zero : forall X (c : changes X) x, (forall s, In s (times c) -> le s t = false) -> accumulate c t x = 0).
    { intros X c x H. induction c as [| [s diff] c IH]; simpl; [reflexivity |].
      simpl in H. rewrite (H s) by now left. rewrite IH; [reflexivity | intros; apply H; now right]. }
    intros w. rewrite Heq, accumulate_app, (zero W more w).
    + simpl. rewrite (Hold t w). apply f_counts. intros v. rewrite accumulate_app, (zero V new v Hno). reflexivity.
    + intros s Hs. destruct (le s t) eqn:H; [| reflexivity].
      apply Hmore, Hts, interesting_new_below in Hs. destruct Hs as (n & Hn & Hle).
      assert (Hnt : le n t = true) by now apply le_trans with s. rewrite (Hno n Hn) in Hnt. discriminate.
Qed.

(** ** There are finitely many interesting times, and they can be listed in a linear extension of the order *)

Variable eq_dec : forall a b : T, {a = b} + {a <> b}.

(** All least upper bounds of one new time with some entries. *)
Fixpoint bounds (new entries : list T) : list T :=
  match entries with
  | [] => new
  | h :: rest => let found := bounds new rest in nodup eq_dec (map (fun t => lub t h) found ++ found)
  end.

Lemma lub_assoc a b c : lub (lub a b) c = lub a (lub b c).
Proof.
  apply le_antisym; repeat apply lub_least; eauto using le_trans.
Qed.

Lemma lub_comm a b : lub a b = lub b a.
Proof. apply le_antisym; apply lub_least; auto. Qed.

Lemma lub_absorb a b : le b a = true -> lub a b = a.
Proof. intros H. apply le_antisym; [apply lub_least |]; auto. Qed.

Lemma bounds_closed new entries t h : In t (bounds new entries) -> In h entries -> In (lub t h) (bounds new entries).
Proof.
  revert t. induction entries as [| g rest IH]; intros t Ht Hh; [destruct Hh |].
  simpl in *. rewrite nodup_In, in_app_iff, in_map_iff in *.
  destruct Hh as [-> | Hh].
  - left. destruct Ht as [(u & <- & Hu) | Ht].
    + exists u. split; [| assumption]. symmetry. apply lub_absorb. apply lub_right.
    + exists t. auto.
  - destruct Ht as [(u & <- & Hu) | Ht].
    + left. exists (lub u h). split; [| now apply IH]. now rewrite !lub_assoc, (lub_comm g h).
    + right. now apply IH.
Qed.

Lemma bounds_interesting new entries all :
  (forall h, In h entries -> In h all) -> forall t, In t (bounds new entries) -> interesting new all t.
Proof.
  intros Hsub. induction entries as [| g rest IH]; simpl; intros t Ht; [now constructor |].
  apply nodup_In, in_app_iff in Ht. destruct Ht as [Ht | Ht].
  - apply in_map_iff in Ht. destruct Ht as (u & <- & Hu). apply interesting_lub; [apply IH | apply Hsub; now left]; auto.
    intros; apply Hsub; now right.
  - apply IH; [intros; apply Hsub; now right | assumption].
Qed.

Lemma bounds_new new entries t : In t new -> In t (bounds new entries).
Proof. intros H. induction entries; simpl; [assumption | apply nodup_In, in_app_iff; now right]. Qed.

(** Put a time before the first that is at or after it. *)
Fixpoint place (t : T) (ts : list T) : list T :=
  match ts with
  | [] => [t]
  | u :: rest => if le t u then t :: u :: rest else u :: place t rest
  end.

Definition schedule (new entries : list T) : list T := fold_right place [] (nodup eq_dec (bounds new entries)).

Lemma place_in t ts u : In u (place t ts) <-> u = t \/ In u ts.
Proof.
  induction ts as [| x ts IH]; simpl; [intuition |].
  destruct (le t x); simpl; [intuition | rewrite IH; intuition].
Qed.

Lemma place_linear t ts : linear ts -> ~ In t ts -> linear (place t ts).
Proof.
  induction ts as [| u ts IH]; simpl; [tauto |]. intros [Hlater Hlin] Hout.
  destruct (le t u) eqn:Htu; simpl.
  - split; [| auto]. intros x [<- | Hx].
    + destruct (le u t) eqn:Hut; [| reflexivity]. exfalso. apply Hout. left. apply le_antisym; assumption.
    + destruct (le x t) eqn:Hxt; [| reflexivity].
      assert (Hxu : le x u = true) by (apply le_trans with t; assumption). rewrite (Hlater x Hx) in Hxu. discriminate.
  - split; [| apply IH; auto]. intros x Hx. apply place_in in Hx. destruct Hx as [-> | Hx]; [assumption | auto].
Qed.

Lemma schedule_linear new entries : linear (schedule new entries).
Proof.
  unfold schedule. induction (NoDup_nodup eq_dec (bounds new entries)) as [| x l Hx _ IH]; simpl; [trivial |].
  apply place_linear; [assumption |].
  intros Hin. apply Hx. clear - Hin. induction l as [| y l IH]; simpl in *; [assumption |].
  apply place_in in Hin. destruct Hin as [-> | Hin]; auto.
Qed.

Lemma schedule_in new entries t : In t (schedule new entries) <-> interesting new entries t.
Proof.
  assert (Hsame : In t (schedule new entries) <-> In t (bounds new entries)).
  { unfold schedule. rewrite <- (nodup_In eq_dec (bounds new entries)).
    induction (nodup eq_dec (bounds new entries)) as [| x l IH]; simpl; [tauto |]. rewrite place_in, IH. intuition. }
  rewrite Hsame. split.
  - apply bounds_interesting. auto.
  - clear Hsame. induction 1; [now apply bounds_new | apply bounds_closed; assumption].
Qed.

(** One step of a reduction, as a function: what it lists and corrects. *)
Definition step (old new : changes V) (output : changes W) : changes W :=
  process (new ++ old) (schedule (times new) (times (new ++ old))) output.

Theorem reduce_step old new output :
  (forall t, right_at old output t) -> forall t, right_at (new ++ old) (step old new output) t.
Proof.
  intros H. unfold step. apply incremental_reduce with (entries := times (new ++ old)); auto using schedule_linear.
  intros t. apply schedule_in.
Qed.

(** A reduction from nothing: with each batch of the input, the output is right at all times. *)
Fixpoint run (batches : list (changes V)) : changes V * changes W :=
  match batches with
  | [] => ([], [])
  | new :: older => let (old, output) := run older in (new ++ old, step old new output)
  end.

Theorem reduce_run batches :
  (forall w, f (fun _ => 0) w = 0) ->
  fst (run batches) = concat batches /\ forall t, right_at (concat batches) (snd (run batches)) t.
Proof.
  intros Hzero. induction batches as [| new older [Hin Hright]]; simpl.
  - split; [reflexivity |]. intros t w. simpl. symmetry. erewrite f_counts; [apply Hzero | reflexivity].
  - destruct (run older) as [old output]. simpl in *. subst old. split; [reflexivity |]. now apply reduce_step.
Qed.

End Reduce.
