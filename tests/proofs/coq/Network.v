(** The exchange over a network: atomic batches in FIFO channels, any interleaving, aggregation on the way, loss of workers.

    A worker adds what it does to a box for each neighbour, flushes a box as one batch, and receives batches in the order in which
    each neighbour flushed them. What it receives it counts, and adds to the boxes of the neighbours that it forwards to: a box
    is a sum of whole statements. The machine is written for any kind of sums: lists of statements, which the proofs look
    into, and counts, which is all that real workers have. Every view is a cut, so [Exchange.safety] holds of it; and
    if the network is fair, every view follows what is true. *)
From Coq Require Import List ZArith Lia Arith Bool.
From Timely Require Import Exchange.
Import ListNotations.
Open Scope Z_scope.

Section Network.

Variable P : Type.
Variable eq_dec : forall a b : P, {a = b} + {a <> b}.
Variable le : P -> P -> Prop.
Hypothesis le_refl : forall a, le a a.
Hypothesis le_trans : forall a b c, le a b -> le b c -> le a c.
Hypothesis le_antisym : forall a b, le a b -> le b a -> a = b.
Variable owned : P -> bool.
Variable workers : nat.
Variable start : nat -> list P.
Hypothesis start_owned : forall p s, In s (start p) -> owned s = true.

Notation event := (event P).
Notation total := (total P eq_dec).
Notation by_worker := (by_worker P).
Notation initial := (initial P eq_dec workers start).
Notation legal := (legal P eq_dec le owned workers start).
Notation seen := (seen P).
Notation who := (who P).

(** ** Who sends what to whom

    [sends w b]: what [w] does goes to [b]. [forwards w b c]: what [b] receives of [w] goes on to [c]. *)
Variable sends : nat -> nat -> bool.
Variable forwards : nat -> nat -> nat -> bool.

(** That the groups of workers form a tree: there is one way from each worker to each other one, along [before]. *)
Variable before : nat -> nat -> nat.
Variable distance : nat -> nat -> nat.
Definition via (w b p : nat) : bool := negb (p =? b)%nat && (before p b =? w)%nat.
Hypothesis sends_via : forall p b, sends p b = via p b p.
Hypothesis forwards_via : forall p w b c, via w b p = true -> forwards w b c = via b c p.
Hypothesis before_nearer : forall p b, p <> b -> (distance p (before p b) < distance p b)%nat.

Inductive action :=
| Do (e : event)
| Flush (w b : nat)
| Deliver (w b : nat)
| Lose (w : nat) (arrives : nat -> nat).  (* of what [w] sent to [b], only the oldest [arrives b] batches arrive *)

Section Machine.

(** What boxes, batches and views are made of. *)
Variable A : Type.
Variable zero : A.
Variable plus : A -> A -> A.
Variable one : event -> A.

Record state := State {
  history_of : list event;               (* all that was done, newest first: no worker knows it *)
  view_of : nat -> A;                    (* what each worker did or received *)
  box_of : nat -> nat -> A;              (* what a worker has yet to flush to a neighbour *)
  queue_of : nat -> nat -> list A;       (* batches under way, newest first *)
  alive_of : nat -> bool
}.

Definition upd {X} (f : nat -> X) (a : nat) (x : X) : nat -> X := fun b => if (b =? a)%nat then x else f b.
Definition upd2 {X} (f : nat -> nat -> X) (a b : nat) (x : X) := upd f a (upd (f a) b x).

(** Add to the boxes of a worker that [to] chooses. *)
Definition add_to (f : nat -> nat -> A) (w : nat) (to : nat -> bool) (x : A) : nat -> nat -> A :=
  upd f w (fun b => if to b then plus x (f w b) else f w b).

Definition begin : state := State [] (fun _ => zero) (fun _ _ => zero) (fun _ _ => []) (fun _ => true).

Definition oldest (k : nat) (q : list A) : list A := skipn (length q - k) q.

Definition step (a : action) (st : state) : option state :=
  match a with
  | Do e =>
      if alive_of st (who e) then
        Some (State (e :: history_of st) (upd (view_of st) (who e) (plus (one e) (view_of st (who e))))
                    (add_to (box_of st) (who e) (sends (who e)) (one e)) (queue_of st) (alive_of st))
      else None
  | Flush w b =>
      if alive_of st w then
        Some (State (history_of st) (view_of st) (upd2 (box_of st) w b zero)
                    (upd2 (queue_of st) w b (box_of st w b :: queue_of st w b)) (alive_of st))
      else None
  | Deliver w b =>
      match rev (queue_of st w b) with
      | m :: rest =>
          if alive_of st b then
            Some (State (history_of st) (upd (view_of st) b (plus m (view_of st b)))
                        (add_to (box_of st) b (forwards w b) m) (upd2 (queue_of st) w b (rev rest)) (alive_of st))
          else None
      | [] => None
      end
  | Lose w arrives =>
      Some (State (history_of st) (view_of st) (upd (box_of st) w (fun _ => zero))
                  (upd (queue_of st) w (fun b => oldest (arrives b) (queue_of st w b))) (upd (alive_of st) w false))
  end.

Fixpoint steps (l : list action) (st : state) : option state :=
  match l with
  | [] => Some st
  | a :: l => match step a st with Some st' => steps l st' | None => None end
  end.

End Machine.

Ltac fields := cbn [history_of view_of box_of queue_of alive_of].

Lemma upd_same {X} f a (x : X) : upd f a x a = x.
Proof. unfold upd. now rewrite Nat.eqb_refl. Qed.

Lemma upd_other {X} f a (x : X) b : b <> a -> upd f a x b = f b.
Proof. unfold upd. intros H. destruct (Nat.eqb_spec b a); congruence. Qed.

(** ** The machine of statements *)

Notation logs := (state (list event)).
Definition log_step := step (list event) [] (@app event) (fun e => [e]).
Definition log_steps := steps (list event) [] (@app event) (fun e => [e]).
Definition log_begin := begin (list event) [].
Notation history := (history_of (list event)).
Notation view := (view_of (list event)).
Notation box := (box_of (list event)).
Notation queue := (queue_of (list event)).
Notation alive := (alive_of (list event)).

Definition through (w b : nat) (l : list event) := filter (fun e => via w b (who e)) l.

(** What goes from [w] to [b] was received, is under way, waits in the box, or was lost with [w]; in this order. *)
Definition link (st : logs) (w b : nat) : Prop :=
  exists gone, through w b (view st w) = gone ++ box st w b ++ concat (queue st w b) ++ through w b (view st b) /\
               (alive st w = true -> gone = []).

Definition invariant (st : logs) : Prop :=
  (forall w b, link st w b) /\ (forall p, by_worker p (view st p) = by_worker p (history st)).

Lemma through_app w b l m : through w b (l ++ m) = through w b l ++ through w b m.
Proof. unfold through. apply filter_app. Qed.

Lemma through_all w b l : (forall e, In e l -> via w b (who e) = true) -> through w b l = l.
Proof.
  unfold through. induction l as [| e l IH]; simpl; intros H; [reflexivity |].
  rewrite (H e) by now left. f_equal. apply IH. intros. apply H. now right.
Qed.

Lemma through_none w b l : (forall e, In e l -> via w b (who e) = false) -> through w b l = [].
Proof.
  unfold through. induction l as [| e l IH]; simpl; intros H; [reflexivity |].
  rewrite (H e) by now left. apply IH. intros. apply H. now right.
Qed.

Lemma via_own w b : via w b b = false.
Proof. unfold via. now rewrite Nat.eqb_refl. Qed.

Lemma via_unique w v b p : via w b p = true -> v <> w -> via v b p = false.
Proof.
  unfold via. rewrite andb_true_iff, Nat.eqb_eq. intros [-> <-] H. simpl. apply Nat.eqb_neq. congruence.
Qed.

Lemma concat_rev_cons (q rest : list (list event)) m :
  rev q = m :: rest -> concat q = concat (rev rest) ++ m.
Proof.
  intros H. rewrite <- (rev_involutive q), H. simpl. rewrite concat_app. simpl. now rewrite app_nil_r.
Qed.

Lemma oldest_split k (q : list (list event)) : exists cut, q = cut ++ oldest (list event) k q.
Proof. exists (firstn (length q - k) q). symmetry. apply firstn_skipn. Qed.

(** All that is under way from [w] to [b] goes that way. *)
Lemma batch_via st w b m rest : link st w b -> rev (queue st w b) = m :: rest -> forall e, In e m -> via w b (who e) = true.
Proof.
  intros (gone & Heq & _) Hq e He.
  assert (Hin : In e (through w b (view st w))).
  { rewrite Heq, (concat_rev_cons _ _ _ Hq). rewrite !in_app_iff. tauto. }
  unfold through in Hin. now apply filter_In in Hin.
Qed.

Ltac updates := repeat first [rewrite upd_same | rewrite upd_other by congruence].

Lemma invariant_step st a st' : invariant st -> log_step a st = Some st' -> invariant st'.
Proof.
  intros [Hlink Hown] Hstep. destruct a as [e | w b | w b | w arrives]; unfold log_step in Hstep; simpl in Hstep.
  - (* Do *)
    destruct (alive st (who e)) eqn:Halive; [| discriminate]. injection Hstep as <-. split.
    + intros w b. destruct (Hlink w b) as (gone & Heq & Hgone). exists gone. fields. unfold add_to. split; [| assumption].
      assert (Hb : through w b (upd (view st) (who e) (e :: view st (who e)) b) = through w b (view st b)).
      { destruct (Nat.eq_dec b (who e)) as [-> | Hne]; updates; [| reflexivity].
        unfold through. simpl. now rewrite via_own. }
      change ([e] ++ view st (who e)) with (e :: view st (who e)) in *.
      rewrite Hb. destruct (Nat.eq_dec w (who e)) as [-> | Hne]; updates; [| assumption].
      rewrite sends_via. rewrite (Hgone Halive) in *. simpl in *. unfold through in *. simpl.
      destruct (via (who e) b (who e)); simpl; rewrite Heq; reflexivity.
    + intros p. fields. rewrite (by_worker_cons P). destruct (Nat.eqb_spec (who e) p) as [<- | Hne].
      * updates. simpl. rewrite Nat.eqb_refl. f_equal. apply Hown.
      * updates. apply Hown.
  - (* Flush *)
    destruct (alive st w) eqn:Halive; [| discriminate]. injection Hstep as <-. split; [| exact Hown].
    intros v c. destruct (Hlink v c) as (gone & Heq & Hgone). exists gone. fields. split; [| assumption]. unfold upd2.
    destruct (Nat.eq_dec v w) as [-> | Hv]; updates; [| assumption].
    destruct (Nat.eq_dec c b) as [-> | Hc]; updates; [| assumption].
    simpl. now rewrite <- app_assoc.
  - (* Deliver *)
    destruct (rev (queue st w b)) as [| m rest] eqn:Hq; [discriminate |].
    destruct (alive st b) eqn:Halive; [| discriminate]. injection Hstep as <-.
    assert (Hvia := batch_via st w b m rest (Hlink w b) Hq).
    split.
    + intros v c. destruct (Hlink v c) as (gone & Heq & Hgone). exists gone. fields. split; [| assumption].
      unfold add_to, upd2.
      (* the sender's side: a worker that received, and forwards *)
      assert (Hsent : through v c (upd (view st) b (m ++ view st b) v) =
                      gone ++ upd (box st) b (fun x => if forwards w b x then m ++ box st b x else box st b x) v c ++
                      concat (queue st v c) ++ through v c (view st c)).
      { destruct (Nat.eq_dec v b) as [-> | Hv]; updates; [| assumption].
        rewrite through_app. rewrite (Hgone Halive) in *. simpl in *.
        destruct (forwards w b c) eqn:Hf.
        - rewrite (through_all b c m); [now rewrite Heq, <- app_assoc |].
          intros e He. rewrite <- (forwards_via (who e) w b c); [assumption | now apply Hvia].
        - rewrite (through_none b c m); [assumption |].
          intros e He. rewrite <- (forwards_via (who e) w b c); [assumption | now apply Hvia]. }
      rewrite Hsent. f_equal. f_equal.
      (* the receiver's side *)
      destruct (Nat.eq_dec c b) as [-> | Hc].
      * rewrite (upd_same (view st)). rewrite through_app. destruct (Nat.eq_dec v w) as [-> | Hv].
        -- rewrite (upd_same (queue st)), upd_same, (concat_rev_cons _ _ _ Hq), (through_all w b m Hvia). now rewrite <- app_assoc.
        -- rewrite (upd_other (queue st)) by assumption. rewrite (through_none v b m); [reflexivity |].
           intros e He. apply (via_unique w); [now apply Hvia | assumption].
      * rewrite (upd_other (view st)) by assumption. f_equal. f_equal.
        destruct (Nat.eq_dec v w) as [-> | Hv]; updates; reflexivity.
    + intros p. fields. destruct (Nat.eq_dec p b) as [-> | Hne]; updates; [| apply Hown].
      unfold Exchange.by_worker in *. rewrite filter_app, <- (Hown b).
      replace (filter (fun e => (who e =? b)%nat) m) with (@nil event); [reflexivity |].
      symmetry. clear - Hvia. induction m as [| e m IH]; simpl; [reflexivity |].
      destruct (Nat.eqb_spec (who e) b) as [Heq | _].
      * specialize (Hvia e (or_introl eq_refl)). rewrite Heq, via_own in Hvia. discriminate.
      * apply IH. intros. apply Hvia. now right.
  - (* Lose *)
    injection Hstep as <-. split; [| exact Hown].
    intros v c. destruct (Hlink v c) as (gone & Heq & Hgone). destruct (Nat.eq_dec v w) as [-> | Hv].
    + destruct (oldest_split (arrives c) (queue st w c)) as (cut & Hcut).
      exists (gone ++ box st w c ++ concat cut). fields. updates. split; [| discriminate].
      rewrite Heq. rewrite Hcut at 1. rewrite concat_app, <- !app_assoc. reflexivity.
    + exists gone. fields. updates. split; assumption.
Qed.

Lemma invariant_steps l st st' : invariant st -> log_steps l st = Some st' -> invariant st'.
Proof.
  revert st. induction l as [| a l IH]; intros st Hinv Hsteps; simpl in Hsteps; [now injection Hsteps as <- |].
  unfold log_steps in Hsteps. simpl in Hsteps.
  destruct (step (list event) [] (app (A:=event)) (fun e => [e]) a st) as [st1 |] eqn:Hs; [| discriminate].
  apply (IH st1); [| assumption]. now apply (invariant_step st a).
Qed.

Lemma invariant_begin : invariant log_begin.
Proof. split; [intros w b; exists []; now split | reflexivity]. Qed.

(** ** Views are cuts *)

Definition suffix (old new : list event) := exists more, new = more ++ old.

Lemma suffix_filter f old new : suffix old new -> suffix (filter f old) (filter f new).
Proof. intros (more & ->). exists (filter f more). apply filter_app. Qed.

Lemma by_worker_through p w b l : via w b p = true -> by_worker p (through w b l) = by_worker p l.
Proof.
  intros H. unfold through, Exchange.by_worker. induction l as [| e l IH]; simpl; [reflexivity |].
  destruct (Nat.eqb_spec (who e) p) as [Heq | Hne].
  - rewrite Heq, H. simpl. rewrite Heq, Nat.eqb_refl. now f_equal.
  - destruct (via w b (who e)); simpl; [destruct (Nat.eqb_spec (who e) p); [congruence |] |]; assumption.
Qed.

(** What a worker has of another is the beginning of what that one did. *)
Lemma view_suffix st : invariant st -> forall p b, suffix (by_worker p (view st b)) (by_worker p (history st)).
Proof.
  intros [Hlink Hown] p b. remember (distance p b) as k eqn:Hk. revert b Hk.
  induction k as [k IH] using lt_wf_ind. intros b ->.
  destruct (Nat.eq_dec p b) as [<- | Hne]; [rewrite Hown; now exists [] |].
  assert (Hvia : via (before p b) b p = true).
  { unfold via. rewrite Nat.eqb_refl, andb_true_r. apply negb_true_iff. now apply Nat.eqb_neq. }
  destruct (IH (distance p (before p b)) (before_nearer p b Hne) (before p b) eq_refl) as (more & Hmore).
  destruct (Hlink (before p b) b) as (gone & Heq & _).
  apply (f_equal (by_worker p)) in Heq. rewrite by_worker_through in Heq by assumption.
  unfold Exchange.by_worker in *. rewrite !filter_app in Heq.
  fold (by_worker p (through (before p b) b (view st b))) in Heq. rewrite by_worker_through in Heq by assumption.
  rewrite Hmore, Heq. unfold Exchange.by_worker. eexists. rewrite !app_assoc. reflexivity.
Qed.

(** The cut that a view is. *)
Definition cut_of (st : logs) (b p : nat) : nat := length (by_worker p (view st b)).

Lemma by_worker_seen n r p :
  by_worker p (seen n r) = skipn (length (by_worker p r) - n p) (by_worker p r).
Proof.
  induction r as [| e r IH]; [now rewrite skipn_nil |].
  rewrite (by_worker_cons P p e r). cbn [Exchange.seen]. destruct (Nat.eqb_spec (who e) p) as [<- | Hne].
  - destruct (Nat.ltb_spec (length (by_worker (who e) r)) (n (who e))) as [Hlt | Hge].
    + rewrite (by_worker_cons P), Nat.eqb_refl. cbn [length].
      assert (S (length (by_worker (who e) r)) - n (who e) = 0)%nat as -> by lia. cbn [skipn]. f_equal.
      rewrite IH. assert (length (by_worker (who e) r) - n (who e) = 0)%nat as -> by lia. reflexivity.
    + rewrite IH. cbn [length]. rewrite Nat.sub_succ_l by assumption. reflexivity.
  - destruct (length (by_worker (who e) r) <? n (who e))%nat; [| assumption].
    rewrite (by_worker_cons P). destruct (Nat.eqb_spec (who e) p); [congruence | assumption].
Qed.

Definition counts (st : logs) (b : nat) (s : P) : Z := initial s + total (view st b) s.

Lemma view_workers st : invariant st -> legal (history st) -> forall b, Forall (fun e => (who e < workers)%nat) (view st b).
Proof.
  intros Hinv Hlegal b. apply Forall_forall. intros e He.
  assert (Hw := legal_who P eq_dec le owned workers start (history st) Hlegal). rewrite Forall_forall in Hw. apply Hw.
  destruct (view_suffix st Hinv (who e) b) as (more & Heq).
  assert (In e (by_worker (who e) (history st))).
  { rewrite Heq. apply in_or_app. right. unfold Exchange.by_worker. apply filter_In. split; [assumption | apply Nat.eqb_refl]. }
  unfold Exchange.by_worker in *. now apply filter_In in H.
Qed.

(** A worker's view is what a cut counts. *)
Theorem views_are_cuts st b s :
  invariant st -> legal (history st) ->
  counts st b s = Exchange.view P eq_dec workers start (cut_of st b) (history st) s /\
  (forall p, (cut_of st b p <= length (by_worker p (history st)))%nat).
Proof.
  intros Hinv Hlegal. split.
  - unfold counts, Exchange.view. f_equal.
    rewrite (total_by_worker P eq_dec workers (view st b)) by now apply view_workers.
    rewrite (total_by_worker P eq_dec workers (seen _ _)).
    + apply sum_to_ext. intros p _. rewrite by_worker_seen. unfold cut_of.
      destruct (view_suffix st Hinv p b) as (more & Heq). rewrite Heq, app_length.
      replace (_ - _)%nat with (length more) by lia. rewrite skipn_app, skipn_all, Nat.sub_diag. reflexivity.
    + apply Forall_forall. intros e He. apply seen_in in He.
      assert (Hw := legal_who P eq_dec le owned workers start (history st) Hlegal). rewrite Forall_forall in Hw. now apply Hw.
  - intros p. unfold cut_of. destruct (view_suffix st Hinv p b) as (more & ->). rewrite app_length. lia.
Qed.

(** Nothing that worker [b] counts could result in [t]. *)
Definition passed_at (st : logs) (b : nat) (t : P) := forall s, le s t -> counts st b s <= 0.

Lemma history_grows l st st' : log_steps l st = Some st' -> exists more, history st' = more ++ history st.
Proof.
  revert st. induction l as [| a l IH]; intros st Hs; unfold log_steps in Hs; simpl in Hs.
  - injection Hs as <-. now exists [].
  - destruct (step (list event) [] (app (A:=event)) (fun e => [e]) a st) as [st1 |] eqn:H1; [| discriminate].
    destruct (IH st1 Hs) as (more & ->).
    assert (Hone : exists few, history st1 = few ++ history st).
    { destruct a as [e | w b | w b | w arrives]; simpl in H1.
      - destruct (alive st (who e)); [| discriminate]. injection H1 as <-. now exists [e].
      - destruct (alive st w); [| discriminate]. injection H1 as <-. now exists [].
      - destruct (rev (queue st w b)); [discriminate |]. destruct (alive st b); [| discriminate]. injection H1 as <-. now exists [].
      - injection H1 as <-. now exists []. }
    destruct Hone as (few & ->). exists (more ++ few). now rewrite app_assoc.
Qed.

(** Safety over a network (S0): once a worker has passed [t], nothing at or before it is left anywhere, now or ever, whatever is
    done, flushed, delivered or lost; nor is anything gained or lost there any more. *)
Theorem network_safety l st l' st' b t :
  log_steps l log_begin = Some st -> log_steps l' st = Some st' -> legal (history st') -> passed_at st b t ->
  (forall s, le s t -> truth P eq_dec workers start (history st') s = 0) /\
  (exists more, history st' = more ++ history st /\
                forall e s, In e more -> le s t -> ~ In s (gained P e) /\ ~ In s (lost P e)).
Proof.
  intros Hl Hl' Hlegal Hpass.
  assert (Hinv : invariant st) by (apply (invariant_steps l log_begin); [apply invariant_begin | assumption]).
  destruct (history_grows l' st st' Hl') as (more & Heq).
  assert (Hlegal0 : legal (history st)) by (rewrite Heq in Hlegal; now apply legal_app in Hlegal).
  assert (Hcut : forall p, (cut_of st b p <= length (by_worker p (history st)))%nat).
  { intros p. now apply (views_are_cuts st b t). }
  assert (Hp : passed P eq_dec le workers start (cut_of st b) (history st) t).
  { intros s Hs. destruct (views_are_cuts st b s Hinv Hlegal0) as [<- _]. now apply Hpass. }
  split.
  - intros s Hs. rewrite Heq in *.
    apply (safety_truth P eq_dec le le_refl le_trans le_antisym owned workers start start_owned (cut_of st b) _ t); try assumption.
    apply (passed_monotone P eq_dec le le_refl le_trans le_antisym owned workers start start_owned (cut_of st b)); auto.
  - exists more. split; [assumption |]. intros e s He Hs. rewrite Heq in Hlegal.
    apply (safety_for_ever P eq_dec le le_refl le_trans le_antisym owned workers start start_owned
             (cut_of st b) more (history st) t); assumption.
Qed.

(** ** Counts are enough: the machine of sums does what the machine of statements does *)

Section Sums.
Variable A : Type.
Variable zero : A.
Variable plus : A -> A -> A.
Variable one : event -> A.
Variable count : A -> P -> Z.
Hypothesis count_zero : forall s, count zero s = 0.
Hypothesis count_plus : forall a b s, count (plus a b) s = count a s + count b s.
Hypothesis count_one : forall e s, count (one e) s = net P eq_dec e s.

Definition sums (a : A) (l : list event) := forall s, count a s = total l s.

Definition agrees (st : state A) (st' : logs) : Prop :=
  history_of A st = history st' /\
  (forall w, sums (view_of A st w) (view st' w)) /\
  (forall w b, sums (box_of A st w b) (box st' w b)) /\
  (forall w b, Forall2 sums (queue_of A st w b) (queue st' w b)) /\
  (forall w, alive_of A st w = alive st' w).

Ltac parts := split; [| split; [| split; [| split]]].

Lemma sums_plus a b l m : sums a l -> sums b m -> sums (plus a b) (l ++ m).
Proof. intros Ha Hb s. rewrite count_plus, total_app. now rewrite Ha, Hb. Qed.

Lemma sums_one e : sums (one e) [e].
Proof. intros s. rewrite count_one. simpl. lia. Qed.

Lemma Forall2_rev {X Y} (R : X -> Y -> Prop) a b : Forall2 R a b -> Forall2 R (rev a) (rev b).
Proof. induction 1; simpl; [constructor |]. apply Forall2_app; [assumption | repeat constructor; assumption]. Qed.

Lemma Forall2_length {X Y} (R : X -> Y -> Prop) a b : Forall2 R a b -> length a = length b.
Proof. induction 1; simpl; [reflexivity | now f_equal]. Qed.

Lemma Forall2_skipn {X Y} (R : X -> Y -> Prop) n a b : Forall2 R a b -> Forall2 R (skipn n a) (skipn n b).
Proof. intros H. revert n. induction H; intros [| n]; simpl; auto. Qed.

Theorem sums_suffice st st' a :
  agrees st st' ->
  match step A zero plus one a st, log_step a st' with
  | Some next, Some next' => agrees next next'
  | None, None => True
  | _, _ => False
  end.
Proof.
  intros (Hh & Hv & Hb & Hq & Ha). unfold log_step.
  destruct a as [e | w b | w b | w arrives]; simpl.
  - rewrite Ha. destruct (alive st' (who e)); [| trivial]. parts; fields; auto.
    + now f_equal.
    + intros w. unfold upd. destruct (w =? who e)%nat; [| apply Hv]. apply (sums_plus (one e) _ [e]); [apply sums_one | apply Hv].
    + intros w b. unfold add_to, upd. destruct (w =? who e)%nat; cbn beta; [| apply Hb].
      destruct (sends (who e) b); [| apply Hb]. apply (sums_plus (one e) _ [e]); [apply sums_one | apply Hb].
  - rewrite Ha. destruct (alive st' w); [| trivial]. parts; fields; auto.
    + intros v c. unfold upd2, upd. destruct (v =? w)%nat; cbn beta; [destruct (c =? b)%nat |]; [intros s; apply count_zero | apply Hb | apply Hb].
    + intros v c. unfold upd2, upd. destruct (v =? w)%nat; cbn beta; [destruct (c =? b)%nat |]; [constructor; [apply Hb | apply Hq] | apply Hq | apply Hq].
  - pose proof (Forall2_rev _ _ _ (Hq w b)) as Hrev.
    destruct Hrev as [| m m' rest rest' Hm Hrest]; [trivial |].
    rewrite Ha. destruct (alive st' b); [| trivial]. parts; fields; auto.
    + intros v. unfold upd. destruct (v =? b)%nat; [apply sums_plus; [assumption | apply Hv] | apply Hv].
    + intros v c. unfold add_to, upd. destruct (v =? b)%nat; cbn beta; [| apply Hb].
      destruct (forwards w b c); [apply sums_plus; [assumption | apply Hb] | apply Hb].
    + intros v c. unfold upd2, upd. destruct (v =? w)%nat; cbn beta; [destruct (c =? b)%nat |]; [now apply Forall2_rev | apply Hq | apply Hq].
  - parts; fields; auto.
    + intros v b. unfold upd. destruct (v =? w)%nat; cbn beta; [intros s; apply count_zero | apply Hb].
    + intros v b. unfold upd. destruct (v =? w)%nat; cbn beta; [| apply Hq]. unfold oldest.
      rewrite (Forall2_length _ _ _ (Hq w b)).
      apply Forall2_skipn, Hq.
    + intros v. unfold upd. destruct (v =? w)%nat; [reflexivity | apply Ha].
Qed.

Lemma sums_suffice_steps l st st' :
  agrees st st' ->
  match steps A zero plus one l st, log_steps l st' with
  | Some next, Some next' => agrees next next'
  | None, None => True
  | _, _ => False
  end.
Proof.
  revert st st'. induction l as [| a l IH]; intros st st' H; unfold log_steps; simpl; [assumption |].
  pose proof (sums_suffice st st' a H) as Ha. unfold log_step in Ha.
  destruct (step A zero plus one a st), (step (list event) [] (app (A:=event)) (fun e => [e]) a st'); try tauto. now apply IH.
Qed.

(** Safety of workers that exchange sums only. *)
Theorem sums_safety l st l' st' b t :
  steps A zero plus one l (begin A zero) = Some st -> steps A zero plus one l' st = Some st' ->
  legal (history_of A st') ->
  (forall s, le s t -> initial s + count (view_of A st b) s <= 0) ->
  forall s, le s t -> truth P eq_dec workers start (history_of A st') s = 0.
Proof.
  intros Hl Hl' Hlegal Hpass.
  assert (H0 : agrees (begin A zero) log_begin) .
  { parts; [reflexivity | intros w s; apply count_zero | intros w c s; apply count_zero | constructor | reflexivity]. }
  pose proof (sums_suffice_steps l _ _ H0) as H1. rewrite Hl in H1.
  destruct (log_steps l log_begin) as [log |] eqn:Hlog; [| destruct H1].
  pose proof (sums_suffice_steps l' _ _ H1) as H2. rewrite Hl' in H2.
  destruct (log_steps l' log) as [log' |] eqn:Hlog'; [| destruct H2].
  destruct H2 as (Hh & _). rewrite Hh in *.
  destruct H1 as (_ & Hv & _).
  destruct (network_safety l log l' log' b t Hlog Hlog' Hlegal) as [Htruth _]; [| exact Htruth].
  intros s Hs. unfold counts. rewrite <- (Hv b s). now apply Hpass.
Qed.

End Sums.

(** ** Liveness: if the network is fair, every view follows what is true *)

(** An execution that never ends; [None]: nothing happens. *)
Definition execution (st : nat -> logs) (act : nat -> option action) :=
  st 0%nat = log_begin /\
  forall n, match act n with Some a => log_step a (st n) = Some (st (S n)) | None => st (S n) = st n end.

(** No worker is lost; a box that is not empty is flushed at some time, and a batch under way is delivered at some time. *)
Definition fair (st : nat -> logs) (act : nat -> option action) :=
  (forall n w k, act n <> Some (Lose w k)) /\
  (forall n w b, box (st n) w b <> [] -> exists m, (n <= m)%nat /\ act m = Some (Flush w b)) /\
  (forall n w b, queue (st n) w b <> [] -> exists m, (n <= m)%nat /\ act m = Some (Deliver w b)).

Section Fair.
Variable st : nat -> logs.
Variable act : nat -> option action.
Hypothesis Hexec : execution st act.
Hypothesis Hfair : fair st act.

Lemma execution_steps n : exists l, log_steps l log_begin = Some (st n).
Proof.
  destruct Hexec as [H0 Hn]. induction n as [| n [l IH]].
  - exists []. now rewrite H0.
  - specialize (Hn n). destruct (act n) as [a |]; [| exists l; now rewrite Hn].
    exists (l ++ [a]). clear - IH Hn. revert IH. generalize log_begin. induction l as [| b l IHl]; intros s IH; unfold log_steps in *; simpl in *.
    + injection IH as ->. unfold log_step in Hn. now rewrite Hn.
    + destruct (step (list event) [] (app (A:=event)) (fun e => [e]) b s); [now apply IHl | discriminate].
Qed.

Lemma execution_invariant n : invariant (st n).
Proof. destruct (execution_steps n) as [l Hl]. apply (invariant_steps l log_begin); [apply invariant_begin | assumption]. Qed.

Lemma always_alive n w : alive (st n) w = true.
Proof.
  destruct Hexec as [H0 Hn]. destruct Hfair as [Hlose _]. induction n as [| n IH]; [now rewrite H0 |].
  specialize (Hn n). specialize (Hlose n). destruct (act n) as [[e | v b | v b | v k] |]; [.. | now rewrite Hn]; unfold log_step in Hn; simpl in Hn.
  - destruct (alive (st n) (who e)); [| discriminate]. injection Hn as <-. exact IH.
  - destruct (alive (st n) v); [| discriminate]. injection Hn as <-. exact IH.
  - destruct (rev (queue (st n) v b)); [discriminate |]. destruct (alive (st n) b); [| discriminate]. injection Hn as <-. exact IH.
  - exfalso. now apply (Hlose v k).
Qed.

(** How much [b] has of what goes to it from [w], and how much there is. *)
Definition arrived n w b := length (through w b (view (st n) b)).
Definition there_is n w b := length (through w b (view (st n) w)).
Definition oldest_length n w b k := length (concat (oldest (list event) k (queue (st n) w b))).

Lemma there_is_sum n w b :
  there_is n w b = (length (box (st n) w b) + length (concat (queue (st n) w b)) + arrived n w b)%nat.
Proof.
  unfold there_is, arrived. destruct (execution_invariant n) as [Hlink _]. destruct (Hlink w b) as (gone & Heq & Hgone).
  rewrite (Hgone (always_alive n w)) in Heq. rewrite Heq, !app_length. simpl. lia.
Qed.

Lemma oldest_all (q : list (list event)) k : (length q <= k)%nat -> oldest (list event) k q = q.
Proof. intros H. unfold oldest. now replace (length q - k)%nat with 0%nat by lia. Qed.

(** What the oldest [k] batches have, a delivery takes in: then the oldest [k - 1] have it. *)
Lemma one_step n w b k x :
  (x <= arrived n w b + oldest_length n w b k)%nat ->
  (x <= arrived (S n) w b + oldest_length (S n) w b k)%nat /\
  (act n = Some (Deliver w b) -> (x <= arrived (S n) w b + oldest_length (S n) w b (pred k))%nat).
Proof.
  intros Hx. destruct Hexec as [_ Hn]. specialize (Hn n).
  destruct (act n) as [[e | v c | v c | v ks] |] eqn:Hact; unfold log_step in Hn; simpl in Hn.
  - split; [| discriminate]. destruct (alive (st n) (who e)); [| discriminate]. injection Hn as Hst.
    unfold arrived, oldest_length in *. rewrite <- Hst. fields. unfold upd.
    destruct (Nat.eqb_spec b (who e)) as [-> | _]; [| assumption]. unfold through in *. simpl. rewrite via_own. exact Hx.
  - split; [| discriminate]. destruct (alive (st n) v); [| discriminate]. injection Hn as Hst.
    unfold arrived, oldest_length in *. rewrite <- Hst. fields. unfold upd2.
    destruct (Nat.eq_dec w v) as [-> | Hw]; [| rewrite (upd_other _ v) by congruence; assumption].
    rewrite (upd_same _ v). destruct (Nat.eq_dec b c) as [-> | Hb]; [| rewrite upd_other by congruence; assumption].
    rewrite upd_same. unfold oldest in *. cbn [length].
    destruct (le_lt_dec k (length (queue (st n) v c))) as [Hk | Hk].
    + rewrite Nat.sub_succ_l by assumption. simpl. exact Hx.
    + replace (S (length (queue (st n) v c)) - k)%nat with 0%nat by lia.
      replace (length (queue (st n) v c) - k)%nat with 0%nat in Hx by lia. simpl in *. rewrite app_length. lia.
  - destruct (rev (queue (st n) v c)) as [| m rest] eqn:Hq; [discriminate |].
    destruct (alive (st n) c); [| discriminate]. injection Hn as Hst.
    assert (Hvia : forall e, In e m -> via v c (who e) = true).
    { apply (batch_via (st n) v c m rest); [apply execution_invariant | assumption]. }
    destruct (Nat.eq_dec b c) as [-> | Hb].
    + destruct (Nat.eq_dec w v) as [-> | Hw].
      * assert (Hqueue : queue (st n) v c = rev rest ++ [m]) by (rewrite <- (rev_involutive (queue _ _ _)), Hq; reflexivity).
        assert (Harr : arrived (S n) v c = (length m + arrived n v c)%nat).
        { unfold arrived. rewrite <- Hst. fields. rewrite upd_same, through_app, app_length, (through_all v c m Hvia). reflexivity. }
        assert (Hold : forall j, oldest_length (S n) v c j = length (concat (oldest (list event) j (rev rest)))).
        { intros j. unfold oldest_length. rewrite <- Hst. fields. unfold upd2. now rewrite !upd_same. }
        assert (Hsplit : forall j, (length (concat (oldest (list event) (S j) (rev rest ++ [m])))
                                    = length (concat (oldest (list event) j (rev rest))) + length m)%nat).
        { intros j. unfold oldest. rewrite app_length. simpl.
          replace (length (rev rest) + 1 - S j)%nat with (length (rev rest) - j)%nat by lia.
          rewrite skipn_app. replace (length (rev rest) - j - length (rev rest))%nat with 0%nat by lia.
          rewrite concat_app, app_length. simpl. rewrite app_nil_r. reflexivity. }
        assert (Hdown : (x <= arrived (S n) v c + oldest_length (S n) v c (pred k))%nat).
        { unfold oldest_length in Hx. rewrite Hqueue in Hx. rewrite Harr, Hold. destruct k as [| k].
          - unfold oldest in *. rewrite Nat.sub_0_r, skipn_all in Hx. simpl in Hx. lia.
          - rewrite Hsplit in Hx. simpl. lia. }
        split; [| auto]. destruct k as [| k]; [exact Hdown |]. simpl in Hdown.
        enough (oldest_length (S n) v c k <= oldest_length (S n) v c (S k))%nat by lia.
        rewrite !Hold. unfold oldest. clear.
        destruct (le_lt_dec (length (rev rest)) k) as [Hk | Hk].
        -- replace (length (rev rest) - k)%nat with 0%nat by lia. replace (length (rev rest) - S k)%nat with 0%nat by lia. lia.
        -- replace (length (rev rest) - k)%nat with (S (length (rev rest) - S k))%nat by lia.
           generalize (length (rev rest) - S k)%nat as i. generalize (rev rest) as q.
           induction q as [| y q IH]; intros [| i]; simpl; [lia | lia | rewrite app_length; lia | apply IH].
      * split; [| congruence]. unfold arrived, oldest_length in *. rewrite <- Hst. fields. unfold upd2.
        rewrite upd_same, through_app, (upd_other (queue (st n))) by congruence.
        rewrite (through_none w c m); [exact Hx |].
        intros e He. apply (via_unique v); [now apply Hvia | assumption].
    + split; [| congruence]. unfold arrived, oldest_length in *. rewrite <- Hst. fields. unfold upd2.
      rewrite (upd_other (view (st n))) by congruence.
      destruct (Nat.eq_dec w v) as [-> | Hw]; [rewrite (upd_same (queue (st n))) | rewrite (upd_other (queue (st n))) by congruence; exact Hx].
      rewrite upd_other by congruence. exact Hx.
  - exfalso. destruct Hfair as [Hlose _]. now apply (Hlose n v ks).
  - split; [| discriminate]. unfold arrived, oldest_length in *. now rewrite Hn.
Qed.

Lemma many_steps n m w b k x :
  (n <= m)%nat -> (x <= arrived n w b + oldest_length n w b k)%nat -> (x <= arrived m w b + oldest_length m w b k)%nat.
Proof. induction 1 as [| m _ IH]; [trivial |]. intros H. now apply one_step, IH. Qed.

Lemma oldest_none n w b : oldest_length n w b 0 = 0%nat.
Proof. unfold oldest_length, oldest. now rewrite Nat.sub_0_r, skipn_all. Qed.

Lemma arrives_in_time k : forall n w b x,
  (x <= arrived n w b + oldest_length n w b k)%nat -> exists m, (n <= m)%nat /\ (x <= arrived m w b)%nat.
Proof.
  induction k as [| k IH]; intros n w b x Hx.
  - exists n. rewrite oldest_none in Hx. lia.
  - destruct (queue (st n) w b) as [| y q] eqn:Hq.
    + exists n. unfold oldest_length in Hx. rewrite Hq in Hx. unfold oldest in Hx. simpl in Hx. lia.
    + destruct Hfair as (_ & _ & Hdeliver).
      destruct (Hdeliver n w b) as (m & Hnm & Hact); [rewrite Hq; discriminate |].
      pose proof (many_steps n m w b (S k) x Hnm Hx) as Hm.
      destruct (one_step m w b (S k) x Hm) as [_ Hdown]. specialize (Hdown Hact). simpl in Hdown.
      destruct (IH (S m) w b x Hdown) as (m' & Hm' & Harr). exists m'. split; [lia | assumption].
Qed.

Lemma arrived_monotone n m w b : (n <= m)%nat -> (arrived n w b <= arrived m w b)%nat.
Proof. intros H. pose proof (many_steps n m w b 0 (arrived n w b) H). rewrite !oldest_none in H0. lia. Qed.

Lemma there_is_step n w b : act n = Some (Flush w b) -> (there_is n w b <= arrived (S n) w b + oldest_length (S n) w b (length (queue (st (S n)) w b)))%nat.
Proof.
  intros Hact. destruct Hexec as [_ Hn]. specialize (Hn n). rewrite Hact in Hn. unfold log_step in Hn. simpl in Hn.
  pose proof (there_is_sum n w b) as Hsum.
  destruct (alive (st n) w); [| discriminate]. injection Hn as Hst.
  unfold oldest_length. rewrite oldest_all by lia. rewrite Hsum. unfold arrived. rewrite <- Hst. fields. unfold upd2.
  rewrite !upd_same. simpl. rewrite app_length. lia.
Qed.

Lemma view_grows n m w : (n <= m)%nat -> exists more, view (st m) w = more ++ view (st n) w.
Proof.
  induction 1 as [| m _ [more IH]]; [now exists [] |].
  destruct Hexec as [_ Hn]. specialize (Hn m). destruct (act m) as [[e | v c | v c | v ks] |]; unfold log_step in Hn; simpl in Hn.
  - destruct (alive (st m) (who e)); [| discriminate]. injection Hn as <-. fields. unfold upd.
    destruct (Nat.eqb_spec w (who e)) as [<- | _]; [exists (e :: more); now rewrite IH | now exists more].
  - destruct (alive (st m) v); [| discriminate]. injection Hn as <-. now exists more.
  - destruct (rev (queue (st m) v c)) as [| x rest]; [discriminate |]. destruct (alive (st m) c); [| discriminate].
    injection Hn as <-. fields. unfold upd. destruct (Nat.eqb_spec w c) as [<- | _]; [| now exists more].
    exists (x ++ more). now rewrite IH, app_assoc.
  - injection Hn as <-. now exists more.
  - rewrite Hn. now exists more.
Qed.

Lemma there_is_monotone n m w b : (n <= m)%nat -> (there_is n w b <= there_is m w b)%nat.
Proof. intros H. unfold there_is. destruct (view_grows n m w H) as (more & ->). rewrite through_app, app_length. lia. Qed.

(** All that goes from [w] to [b] arrives. *)
Lemma link_live n w b : exists m, (n <= m)%nat /\ (there_is n w b <= arrived m w b)%nat.
Proof.
  destruct (box (st n) w b) as [| e rest] eqn:Hbox.
  - apply (arrives_in_time (length (queue (st n) w b))).
    unfold oldest_length. rewrite oldest_all by lia. rewrite there_is_sum, Hbox. simpl. lia.
  - destruct Hfair as (_ & Hflush & _). destruct (Hflush n w b) as (m & Hnm & Hact); [rewrite Hbox; discriminate |].
    destruct (arrives_in_time (length (queue (st (S m)) w b)) (S m) w b (there_is n w b)) as (m' & Hm' & Harr).
    + pose proof (there_is_step m w b Hact). pose proof (there_is_monotone n m w b Hnm). lia.
    + exists m'. split; [lia | assumption].
Qed.

(** All that a worker does arrives at every other one. *)
Lemma arrives n p b :
  exists m, (n <= m)%nat /\ (length (by_worker p (history (st n))) <= cut_of (st m) b p)%nat.
Proof.
  remember (distance p b) as k eqn:Hk. revert b Hk. induction k as [k IH] using lt_wf_ind. intros b ->.
  destruct (Nat.eq_dec p b) as [<- | Hne].
  - exists n. split; [lia |]. unfold cut_of. destruct (execution_invariant n) as [_ Hown]. rewrite Hown. lia.
  - destruct (IH (distance p (before p b)) (before_nearer p b Hne) (before p b) eq_refl) as (m & Hnm & Hm).
    set (w := before p b) in *.
    assert (Hvia : via w b p = true).
    { unfold via, w. rewrite Nat.eqb_refl, andb_true_r. apply negb_true_iff. now apply Nat.eqb_neq. }
    destruct (link_live m w b) as (m' & Hmm & Harr). exists m'. split; [lia |].
    (* what arrived is the oldest part of what there is, so all that was there before is in it *)
    unfold cut_of in *. unfold there_is, arrived in Harr.
    destruct (execution_invariant m') as [Hlink _]. destruct (Hlink w b) as (gone & Heq & _).
    destruct (view_grows m m' w Hmm) as (more & Hmore). rewrite Hmore, through_app in Heq.
    assert (Hsuf : exists extra, through w b (view (st m') b) = extra ++ through w b (view (st m) w)).
    { clear - Heq Harr. rewrite !app_assoc in Heq. remember ((gone ++ _) ++ _) as front eqn:Hf. clear Hf.
      remember (through w b more) as g eqn:Hg. clear Hg.
      remember (through w b (view (st m) w)) as old. remember (through w b (view (st m') b)) as new.
      clear - Heq Harr. revert g Heq. induction front as [| y front IH]; intros [| x g] Heq; simpl in *.
      - exists []. now rewrite Heq.
      - exists (x :: g). now rewrite <- Heq.
      - exfalso. apply (f_equal (@length event)) in Heq. simpl in Heq. rewrite app_length in Heq. lia.
      - injection Heq as _ Heq. now apply (IH g). }
    destruct Hsuf as (extra & Hsuf). apply (f_equal (by_worker p)) in Hsuf.
    rewrite by_worker_through in Hsuf by assumption. rewrite Hsuf. unfold Exchange.by_worker in *. rewrite filter_app, app_length.
    fold (by_worker p (through w b (view (st m) w))). rewrite by_worker_through by assumption. unfold Exchange.by_worker. lia.
Qed.

Lemma cut_monotone n m b p : (n <= m)%nat -> (cut_of (st n) b p <= cut_of (st m) b p)%nat.
Proof.
  intros H. unfold cut_of. destruct (view_grows n m b H) as (more & ->). unfold Exchange.by_worker.
  rewrite filter_app, app_length. lia.
Qed.

Lemma history_monotone n m : (n <= m)%nat -> exists more, history (st m) = more ++ history (st n).
Proof.
  induction 1 as [| m _ [more IH]]; [now exists [] |].
  destruct Hexec as [_ Hn]. specialize (Hn m). destruct (act m) as [a |].
  - destruct (history_grows [a] (st m) (st (S m))) as (few & ->).
    + unfold log_steps. simpl. unfold log_step in Hn. now rewrite Hn.
    + rewrite IH. exists (few ++ more). now rewrite app_assoc.
  - rewrite Hn. now exists more.
Qed.

Lemma all_arrive n k j : exists m, (n <= m)%nat /\
  forall p b, (p < k)%nat -> (b < j)%nat -> (length (by_worker p (history (st n))) <= cut_of (st m) b p)%nat.
Proof.
  induction k as [| k (m & Hnm & Hall)]; [exists n; split; [lia | intros; lia] |].
  assert (Hrow : exists m', (m <= m')%nat /\ forall b, (b < j)%nat -> (length (by_worker k (history (st n))) <= cut_of (st m') b k)%nat).
  { clear Hall. induction j as [| j (m' & Hm' & Hj)]; [exists m; split; [lia | intros; lia] |].
    destruct (arrives m' k j) as (m2 & Hm2 & H2). exists m2. split; [lia |]. intros b Hb.
    destruct (Nat.eq_dec b j) as [-> | Hne].
    - destruct (history_monotone n m' ltac:(lia)) as (more & Hmore). rewrite Hmore in H2. unfold Exchange.by_worker in *.
      rewrite filter_app, app_length in H2. lia.
    - pose proof (Hj b ltac:(lia)). pose proof (cut_monotone m' m2 b k Hm2). lia. }
  destruct Hrow as (m' & Hm' & Hrow). exists m'. split; [lia |]. intros p b Hp Hb.
  destruct (Nat.eq_dec p k) as [-> | Hne]; [now apply Hrow |].
  pose proof (Hall p b ltac:(lia) Hb). pose proof (cut_monotone m m' b p Hm'). lia.
Qed.

(** Liveness: when nothing is left that could result in [t], every worker passes [t], and has passed it from then on. *)
Theorem liveness n t :
  (forall m, legal (history (st m))) ->
  (forall s, le s t -> truth P eq_dec workers start (history (st n)) s <= 0) ->
  exists m, forall m', (m <= m')%nat -> forall b, (b < workers)%nat -> passed_at (st m') b t.
Proof.
  intros Hlegal Htruth. destruct (all_arrive n workers workers) as (m & Hnm & Hall).
  exists m. intros m' Hm' b Hb s Hs.
  destruct (views_are_cuts (st m') b s (execution_invariant m') (Hlegal m')) as [-> _].
  destruct (history_monotone n m' ltac:(lia)) as (more & Hmore). pose proof (Hlegal m') as Hl. rewrite Hmore in Hl |- *.
  set (full := fun p => if (p <? workers)%nat then length (by_worker p (history (st n))) else 0%nat).
  apply (passed_monotone P eq_dec le le_refl le_trans le_antisym owned workers start start_owned full _ more (history (st n)) t);
    try assumption.
  - intros p. unfold full. destruct (p <? workers)%nat; lia.
  - intros p. unfold full. destruct (Nat.ltb_spec p workers) as [Hp | _]; [| lia].
    pose proof (Hall p b Hp Hb). pose proof (cut_monotone m m' b p Hm'). lia.
  - intros s' Hs'. specialize (Htruth s' Hs'). unfold truth in Htruth. unfold Exchange.view.
    replace (seen full (history (st n))) with (history (st n)); [assumption |].
    assert (Hw := legal_who P eq_dec le owned workers start _ (Hlegal n)). clear - Hw.
    assert (Hn : forall p, (p < workers)%nat -> (length (by_worker p (history (st n))) <= full p)%nat).
    { intros p Hp. unfold full. destruct (Nat.ltb_spec p workers); lia. }
    revert Hn Hw. generalize (history (st n)) as r. generalize full. clear.
    intros full r. induction r as [| e r IH]; intros Hn Hw; [reflexivity |]. simpl.
    inversion Hw as [| e0 r0 He Hr]; subst.
    assert (Hlt : (length (by_worker (who e) r) < full (who e))%nat).
    { specialize (Hn (who e) He). simpl in Hn. rewrite Nat.eqb_refl in Hn. simpl in Hn. lia. }
    apply Nat.ltb_lt in Hlt. rewrite Hlt. f_equal. apply IH; [| assumption].
    intros p Hp. specialize (Hn p Hp). simpl in Hn. destruct (who e =? p)%nat; simpl in Hn; lia.
Qed.

(** When all capabilities are dropped and all messages read, every frontier becomes empty. *)
Theorem completion n :
  (forall m, legal (history (st m))) ->
  (forall s, truth P eq_dec workers start (history (st n)) s = 0) ->
  forall t, exists m, forall m', (m <= m')%nat -> forall b, (b < workers)%nat -> passed_at (st m') b t.
Proof. intros Hlegal Hzero t. apply (liveness n t Hlegal). intros s _. rewrite Hzero. lia. Qed.

End Fair.

End Network.
