(** The exchange of progress: what a worker may conclude from any prefix of what each worker did.

    A run is a list of atomic statements, newest first. Each says which pointstamps its worker lost and which it gained. A worker
    owns its capabilities; messages belong to nobody until one worker reads them. A cut tells how many statements of each worker
    were received. The theorem: where nothing that the cut counts could result in a pointstamp, no statement that the cut lacks
    touches it, be it under way or in the future. The idea of the proof: of all that the cut lacks, take a gain at a minimal
    pointstamp. Its reason is not among what the cut lacks, so the cut counts it. *)
From Coq Require Import List ZArith Lia Arith Bool.
Import ListNotations.
Open Scope Z_scope.

Section Exchange.

(** Pointstamps, ordered by could-result-in. *)
Variable P : Type.
Variable eq_dec : forall a b : P, {a = b} + {a <> b}.
Variable le : P -> P -> Prop.
Hypothesis le_refl : forall a, le a a.
Hypothesis le_trans : forall a b c, le a b -> le b c -> le a c.
Hypothesis le_antisym : forall a b, le a b -> le b a -> a = b.

Definition lt a b := le a b /\ a <> b.

(** Whether a pointstamp belongs to the worker that gained it, as a capability does. *)
Variable owned : P -> bool.
Variable workers : nat.

(** What each worker holds at first: a capability for each output. *)
Variable start : nat -> list P.
Hypothesis start_owned : forall p s, In s (start p) -> owned s = true.

Definition occ (l : list P) (s : P) : Z := Z.of_nat (count_occ eq_dec l s).

(** A statement: all that one activation did, at once. *)
Record event := Event { who : nat; lost : list P; gained : list P }.

Definition net (e : event) (s : P) : Z := occ (gained e) s - occ (lost e) s.

Fixpoint total (r : list event) (s : P) : Z :=
  match r with [] => 0 | e :: r => net e s + total r s end.

Definition by_worker (p : nat) (r : list event) := filter (fun e => who e =? p)%nat r.

(** What a worker holds after the statements [r]. *)
Definition held (p : nat) (r : list event) (s : P) : Z := occ (start p) s + total (by_worker p r) s.

Fixpoint sum_to (n : nat) (f : nat -> Z) : Z :=
  match n with O => 0 | S n => f n + sum_to n f end.

(** The counts that all workers begin with: each has one of each output, so there are as many as workers. *)
Definition initial (s : P) : Z := sum_to workers (fun p => occ (start p) s).

Definition truth (r : list event) (s : P) : Z := initial s + total r s.

(** The operator contract (OC2): a gain needs something owned at or before it, or something lost at once and strictly before. *)
Definition justified (r : list event) (e : event) (s : P) : Prop :=
  exists s', (owned s' = true /\ le s' s /\ 0 < held (who e) r s') \/ (In s' (lost e) /\ lt s' s).

Inductive legal : list event -> Prop :=
| legal_nil : legal []
| legal_cons e r :
    legal r ->
    (who e < workers)%nat ->
    (forall s, owned s = true -> 0 <= held (who e) (e :: r) s) ->
    (forall s, owned s = false -> 0 <= truth (e :: r) s) ->
    (forall s, In s (gained e) -> justified r e s) ->
    legal (e :: r).

(** A cut: the first [n p] statements of each worker [p]. *)
Fixpoint seen (n : nat -> nat) (r : list event) : list event :=
  match r with
  | [] => []
  | e :: r => if (length (by_worker (who e) r) <? n (who e))%nat then e :: seen n r else seen n r
  end.

Fixpoint unseen (n : nat -> nat) (r : list event) : list event :=
  match r with
  | [] => []
  | e :: r => if (length (by_worker (who e) r) <? n (who e))%nat then unseen n r else e :: unseen n r
  end.

Definition view (n : nat -> nat) (r : list event) (s : P) : Z := initial s + total (seen n r) s.

(** ** Sums *)

Lemma occ_nonneg l s : 0 <= occ l s.
Proof. unfold occ; lia. Qed.

Lemma occ_in l s : In s l <-> 0 < occ l s.
Proof. unfold occ. rewrite (count_occ_In eq_dec). lia. Qed.

Lemma occ_not_in l s : ~ In s l -> occ l s = 0.
Proof. rewrite occ_in. pose proof (occ_nonneg l s). lia. Qed.

Lemma total_app a b s : total (a ++ b) s = total a s + total b s.
Proof. induction a; simpl; lia. Qed.

Lemma sum_to_ext n f g : (forall p, (p < n)%nat -> f p = g p) -> sum_to n f = sum_to n g.
Proof. induction n; simpl; intros H; [lia | rewrite H by lia; rewrite IHn; [lia | intros; apply H; lia]]. Qed.

Lemma sum_to_add n f g : sum_to n (fun p => f p + g p) = sum_to n f + sum_to n g.
Proof. induction n; simpl; lia. Qed.

Lemma sum_to_nonneg n f : (forall p, (p < n)%nat -> 0 <= f p) -> 0 <= sum_to n f.
Proof. induction n; simpl; intros H; [lia | pose proof (H n ltac:(lia)); assert (0 <= sum_to n f) by (apply IHn; intros; apply H; lia); lia]. Qed.

Lemma sum_to_positive n f p : (forall q, (q < n)%nat -> 0 <= f q) -> (p < n)%nat -> 0 < f p -> 0 < sum_to n f.
Proof.
  induction n; simpl; intros H Hp Hf; [lia |].
  assert (0 <= f n) by (apply H; lia).
  destruct (Nat.eq_dec p n) as [-> | Hne].
  - assert (0 <= sum_to n f) by (apply sum_to_nonneg; intros; apply H; lia). lia.
  - assert (0 < sum_to n f) by (apply IHn; [intros; apply H; lia | lia | assumption]). lia.
Qed.

Lemma sum_to_single n f p : (p < n)%nat -> (forall q, (q < n)%nat -> q <> p -> f q = 0) -> sum_to n f = f p.
Proof.
  induction n; simpl; intros Hp H; [lia |].
  destruct (Nat.eq_dec p n) as [-> | Hne].
  - enough (sum_to n f = 0) by lia.
    rewrite (sum_to_ext n f (fun _ => 0)); [clear; induction n; simpl; lia | intros; apply H; lia].
  - rewrite H by lia. rewrite IHn; [lia | lia | intros; apply H; lia].
Qed.

Lemma by_worker_cons p e r : by_worker p (e :: r) = if (who e =? p)%nat then e :: by_worker p r else by_worker p r.
Proof. reflexivity. Qed.

(** What was done is the sum of what each worker did. *)
Lemma total_by_worker r s :
  Forall (fun e => (who e < workers)%nat) r -> total r s = sum_to workers (fun p => total (by_worker p r) s).
Proof.
  induction 1 as [| e r He _ IH].
  - simpl. clear. induction workers; simpl; lia.
  - simpl total at 1. rewrite IH.
    rewrite (sum_to_ext workers (fun p => total (by_worker p (e :: r)) s)
               (fun p => (if (who e =? p)%nat then net e s else 0) + total (by_worker p r) s)).
    + rewrite sum_to_add. f_equal. rewrite (sum_to_single _ _ (who e)); [now rewrite Nat.eqb_refl | assumption |].
      intros q _ Hq. destruct (Nat.eqb_spec (who e) q); [congruence | reflexivity].
    + intros p _. rewrite by_worker_cons. destruct (who e =? p)%nat; simpl; lia.
Qed.

Lemma truth_held r s : Forall (fun e => (who e < workers)%nat) r -> truth r s = sum_to workers (fun p => held p r s).
Proof. intros H. unfold truth, initial, held. now rewrite sum_to_add, <- total_by_worker. Qed.

(** ** Cuts *)

Lemma seen_unseen n r s : total r s = total (seen n r) s + total (unseen n r) s.
Proof. induction r as [| e r IH]; simpl; [lia |]. destruct (_ <? _)%nat; simpl; lia. Qed.

Lemma seen_in n r e : In e (seen n r) -> In e r.
Proof. clear. induction r as [| x r IH]; simpl; [tauto |]. destruct (_ <? _)%nat; simpl; tauto. Qed.

Lemma unseen_in n r e : In e (unseen n r) -> In e r.
Proof. clear. induction r as [| x r IH]; simpl; [tauto |]. destruct (_ <? _)%nat; simpl; tauto. Qed.

Lemma legal_who r : legal r -> Forall (fun e => (who e < workers)%nat) r.
Proof. induction 1; constructor; assumption. Qed.

Lemma legal_app l r : legal (l ++ r) -> legal r.
Proof. induction l; simpl; [trivial | intros H; inversion H; auto]. Qed.

Lemma held_nonneg r p s : legal r -> owned s = true -> 0 <= held p r s.
Proof.
  induction 1 as [| e r _ IH _ Hown _ _]; intros Hs.
  - unfold held; simpl. pose proof (occ_nonneg (start p) s). lia.
  - destruct (Nat.eq_dec (who e) p) as [<- | Hne]; [now apply Hown |].
    unfold held. rewrite by_worker_cons. destruct (Nat.eqb_spec (who e) p); [congruence | now apply IH].
Qed.

Lemma initial_free s : owned s = false -> initial s = 0.
Proof.
  intros Hs. unfold initial. rewrite (sum_to_ext _ _ (fun _ => 0)); [clear; induction workers; simpl; lia |].
  intros p _. apply occ_not_in. intros Hin. apply start_owned in Hin. congruence.
Qed.

Lemma truth_nonneg r s : legal r -> 0 <= truth r s.
Proof.
  intros H. destruct (owned s) eqn:Hs.
  - rewrite truth_held by now apply legal_who. apply sum_to_nonneg. intros. now apply held_nonneg.
  - destruct H as [| e r _ _ _ Hfree _]; [| now apply Hfree].
    unfold truth. simpl. rewrite initial_free; [lia | assumption].
Qed.

(** The part of a worker's statements that a cut has is one of its histories. *)
Lemma seen_prefix n r p : legal r -> exists r', legal r' /\ by_worker p (seen n r) = by_worker p r'.
Proof.
  induction 1 as [| e r Hr IH Hwho Hown Hfree Hjust].
  - exists []. split; [constructor | reflexivity].
  - destruct (Nat.eq_dec (who e) p) as [He | Hne].
    + simpl. destruct (Nat.ltb_spec (length (by_worker (who e) r)) (n (who e))) as [Hlt | Hge].
      * exists (e :: r). split; [now constructor |].
        rewrite !by_worker_cons. destruct (Nat.eqb_spec (who e) p); [| congruence]. f_equal.
        (* all older statements of the worker are in the cut *)
        clear - Hlt He. rewrite He in Hlt. clear He.
        induction r as [| x r IH]; [reflexivity |].
        simpl seen. rewrite by_worker_cons in Hlt |- *. destruct (Nat.eqb_spec (who x) p) as [Hx | Hx].
        -- simpl in Hlt. rewrite Hx.
           destruct (Nat.ltb_spec (length (by_worker p r)) (n p)); [| lia].
           rewrite by_worker_cons, Hx, Nat.eqb_refl. f_equal. apply IH. lia.
        -- destruct (_ <? _)%nat; [rewrite by_worker_cons; destruct (Nat.eqb_spec (who x) p); [congruence |] |]; apply IH; lia.
      * exact IH.
    + destruct IH as (r' & Hr' & Heq). exists r'. split; [assumption |].
      simpl. destruct (_ <? _)%nat; [rewrite by_worker_cons; destruct (Nat.eqb_spec (who e) p); [congruence |] |]; assumption.
Qed.

Lemma seen_held_nonneg n r p s : legal r -> owned s = true -> 0 <= held p (seen n r) s.
Proof.
  intros H Hs. destruct (seen_prefix n r p H) as (r' & Hr' & Heq).
  unfold held. rewrite Heq. now apply held_nonneg.
Qed.

(** Once the cut lacks a statement of a worker, it lacks all later ones. *)
Lemma seen_after n l e r :
  (length (by_worker (who e) r) <? n (who e) = false)%nat ->
  by_worker (who e) (seen n (l ++ e :: r)) = by_worker (who e) (seen n r).
Proof.
  intros He. induction l as [| x l IH]; simpl.
  - now rewrite He.
  - destruct (length (by_worker (who x) (l ++ e :: r)) <? n (who x))%nat eqn:Hx; [| exact IH].
    rewrite by_worker_cons. destruct (Nat.eqb_spec (who x) (who e)) as [Heq | _]; [| exact IH].
    exfalso. apply Nat.ltb_lt in Hx. apply Nat.ltb_ge in He. rewrite Heq in Hx.
    unfold by_worker in Hx, He. rewrite filter_app, app_length in Hx. simpl in Hx. rewrite Nat.eqb_refl in Hx. simpl in Hx. lia.
Qed.

Definition gains (r : list event) (s : P) := exists e, In e r /\ In s (gained e).

Lemma no_gains_total r s : ~ gains r s -> total r s <= 0.
Proof.
  induction r as [| e r IH]; intros H; simpl; [lia |].
  assert (total r s <= 0) by (apply IH; intros (x & Hx & Hs); apply H; exists x; simpl; auto).
  assert (occ (gained e) s = 0) by (apply occ_not_in; intros Hs; apply H; exists e; simpl; auto).
  unfold net. pose proof (occ_nonneg (lost e) s). lia.
Qed.

Lemma no_gains_lost r s e : ~ gains r s -> In e r -> In s (lost e) -> total r s < 0.
Proof.
  induction r as [| x r IH]; intros H Hin Hs; [destruct Hin |]. simpl.
  assert (Hr : ~ gains r s) by (intros (y & Hy & Hys); apply H; exists y; simpl; auto).
  assert (occ (gained x) s = 0) by (apply occ_not_in; intros Hx; apply H; exists x; simpl; auto).
  unfold net. destruct Hin as [-> | Hin].
  - pose proof (no_gains_total r s Hr). apply occ_in in Hs. lia.
  - specialize (IH Hr Hin Hs). pose proof (occ_nonneg (lost x) s). lia.
Qed.

Lemma gains_dec r s : {gains r s} + {~ gains r s}.
Proof.
  induction r as [| e r IH].
  - right. intros (e & [] & _).
  - destruct (in_dec eq_dec s (gained e)) as [Hin | Hout].
    + left. exists e. simpl. auto.
    + destruct IH as [Hg | Hg].
      * left. destruct Hg as (x & Hx & Hs). exists x. simpl. auto.
      * right. intros (x & [<- | Hx] & Hs); [auto | apply Hg; exists x; auto].
Qed.

Lemma by_worker_gains p r s : gains (by_worker p r) s -> gains r s.
Proof. intros (e & He & Hs). apply filter_In in He. exists e. tauto. Qed.

Lemma by_worker_unseen p n r s : ~ gains (unseen n r) s -> ~ gains (by_worker p (unseen n r)) s.
Proof. intros H Hg. apply H. eapply by_worker_gains; eassumption. Qed.

Lemma by_worker_seen_unseen p n r s :
  total (by_worker p r) s = total (by_worker p (seen n r)) s + total (by_worker p (unseen n r)) s.
Proof.
  induction r as [| e r IH]; simpl; [lia |].
  destruct (_ <? _)%nat; rewrite ?by_worker_cons; destruct (_ =? _)%nat; simpl; lia.
Qed.

Lemma unseen_older n l e r x : In x (unseen n r) -> In x (unseen n (l ++ e :: r)).
Proof.
  intros Hx. induction l as [| y l IH]; simpl.
  - destruct (length (by_worker (who e) r) <? n (who e))%nat; simpl; auto.
  - destruct (length (by_worker (who y) (l ++ e :: r)) <? n (who y))%nat; [exact IH | right; exact IH].
Qed.

(** The first gain, among what a cut lacks, of a pointstamp. *)
Lemma first_gain n r s :
  gains (unseen n r) s ->
  exists l e r', r = l ++ e :: r' /\ In s (gained e) /\ ~ gains (unseen n r') s /\
                 (length (by_worker (who e) r') <? n (who e) = false)%nat.
Proof.
  induction r as [| e r IH]; simpl; [intros (e & [] & _) |].
  destruct (gains_dec (unseen n r) s) as [Hg | Hg].
  - intros _. destruct (IH Hg) as (l & x & r' & -> & H). exists (e :: l), x, r'. split; [reflexivity | exact H].
  - destruct (_ <? _)%nat eqn:He; intros (x & Hx & Hs).
    + exfalso. apply Hg. exists x. auto.
    + destruct Hx as [<- | Hx]; [| exfalso; apply Hg; exists x; auto].
      exists [], e, r. auto.
Qed.

(** A capability that a cut has: counted, since no worker's capabilities are negative. *)
Lemma view_owned n r p s :
  legal r -> owned s = true -> (p < workers)%nat -> 0 < held p (seen n r) s -> 0 < view n r s.
Proof.
  intros H Hs Hp Hpos.
  assert (Hwho : Forall (fun e => (who e < workers)%nat) (seen n r)).
  { apply Forall_forall. intros e He. apply seen_in in He. pose proof (legal_who r H) as Hw. rewrite Forall_forall in Hw. auto. }
  unfold view. fold (truth (seen n r) s). rewrite truth_held by assumption.
  apply (sum_to_positive workers (fun q => held q (seen n r) s) p); [intros; now apply seen_held_nonneg | assumption | assumption].
Qed.

(** What the cut lacks was lost, never gained: the cut counts it. *)
Lemma view_lost n r e s :
  legal r -> ~ gains (unseen n r) s -> In e (unseen n r) -> In s (lost e) -> 0 < view n r s.
Proof.
  intros H Hg He Hs.
  pose proof (no_gains_lost _ _ _ Hg He Hs). pose proof (truth_nonneg r s H).
  unfold truth in *. unfold view. rewrite (seen_unseen n r s) in *. lia.
Qed.

(** Every gain that a cut lacks has its reason in the cut. *)
Lemma reason n r :
  legal r -> forall k L, (length L <= k)%nat -> forall s,
  (forall s', lt s' s -> gains (unseen n r) s' -> In s' L) ->
  gains (unseen n r) s -> exists s', le s' s /\ 0 < view n r s'.
Proof.
  intros Hlegal. induction k as [k IHk] using lt_wf_ind. intros L HL s Hbelow Hg.
  assert (down : forall s', lt s' s -> gains (unseen n r) s' -> exists s'', le s'' s /\ 0 < view n r s'').
  { intros s' Hlt Hg'. pose proof (Hbelow s' Hlt Hg') as Hin.
    destruct (IHk (length (remove eq_dec s' L))) with (L := remove eq_dec s' L) (s := s') as (x & Hx & Hv).
    - pose proof (remove_length_lt eq_dec L s' Hin). lia.
    - lia.
    - intros y [Hy Hne] Hgy. apply in_in_remove; [assumption |].
      apply Hbelow; [| assumption]. destruct Hlt as [Hle Hneq]. split; [now apply le_trans with s' |].
      intros ->. apply Hne. now apply le_antisym.
    - assumption.
    - exists x. split; [apply le_trans with s'; [assumption | apply Hlt] | assumption]. }
  destruct (first_gain n r s Hg) as (l & e & r' & Hr & Hin & Hfirst & Hcut).
  assert (Hlegal' : legal (e :: r')) by (rewrite Hr in Hlegal; now apply legal_app in Hlegal).
  inversion Hlegal' as [| e0 r0 Hr' Hwho Hown Hfree Hjust]; subst e0 r0.
  destruct (Hjust s Hin) as (s' & [(Hown' & Hle & Hpos) | (Hlost & Hlt)]).
  - (* something the worker held when it made the statement *)
    destruct (eq_dec s' s) as [-> | Hne].
    + exists s. split; [apply le_refl |].
      apply (view_owned n r (who e)); [assumption | assumption | assumption |].
      unfold held in *. rewrite Hr, (seen_after n l e r' Hcut).
      rewrite (by_worker_seen_unseen (who e) n r') in Hpos.
      pose proof (no_gains_total _ _ (by_worker_unseen (who e) n r' s Hfirst)). lia.
    + destruct (gains_dec (unseen n r) s') as [Hg' | Hg'].
      * apply (down s'); [split; assumption | assumption].
      * exists s'. split; [assumption |].
        apply (view_owned n r (who e)); [assumption | assumption | assumption |].
        assert (Hg'' : ~ gains (unseen n r') s').
        { intros (x & Hx & Hsx). apply Hg'. exists x. split; [| assumption]. rewrite Hr.
          now apply unseen_older. }
        unfold held in *. rewrite Hr, (seen_after n l e r' Hcut).
        rewrite (by_worker_seen_unseen (who e) n r') in Hpos.
        pose proof (no_gains_total _ _ (by_worker_unseen (who e) n r' s' Hg'')). lia.
  - (* something that the statement lost *)
    destruct (gains_dec (unseen n r) s') as [Hg' | Hg'].
    + apply (down s'); assumption.
    + exists s'. split; [apply Hlt |]. apply (view_lost n r e); [assumption | assumption | | assumption].
      rewrite Hr. clear - Hcut. induction l as [| y l IH]; simpl; [rewrite Hcut; now left |].
      destruct (length (by_worker (who y) (l ++ e :: r')) <? n (who y))%nat; [exact IH | right; exact IH].
Qed.

Lemma reason_of_gain n r s : legal r -> gains (unseen n r) s -> exists s', le s' s /\ 0 < view n r s'.
Proof.
  intros H Hg. apply (reason n r H) with (k := length (flat_map gained (unseen n r))) (L := flat_map gained (unseen n r)).
  - lia.
  - intros s' _ (e & He & Hs). apply in_flat_map. exists e. auto.
  - assumption.
Qed.

(** ** The theorems *)

(** A cut counts nothing that could result in [t]. *)
Definition passed (n : nat -> nat) (r : list event) (t : P) := forall s, le s t -> view n r s <= 0.

(** Safety: no statement that the cut lacks gains or loses anything that could result in [t]. *)
Theorem safety n r t :
  legal r -> passed n r t -> forall e s, In e (unseen n r) -> le s t -> ~ In s (gained e) /\ ~ In s (lost e).
Proof.
  intros H Hpass e s He Hle.
  assert (Hg : forall s, le s t -> ~ gains (unseen n r) s).
  { intros s' Hs' Hg. destruct (reason_of_gain n r s' H Hg) as (x & Hx & Hv).
    assert (view n r x <= 0) by (apply Hpass; now apply le_trans with s'). lia. }
  split; intros Hin.
  - apply (Hg s Hle). exists e. auto.
  - pose proof (view_lost n r e s H (Hg s Hle) He Hin). specialize (Hpass s Hle). lia.
Qed.

(** Then nothing is left there, anywhere. *)
Theorem safety_truth n r t : legal r -> passed n r t -> forall s, le s t -> truth r s = 0.
Proof.
  intros H Hpass s Hle.
  assert (total (unseen n r) s = 0).
  { assert (Hall : forall e, In e (unseen n r) -> ~ In s (gained e) /\ ~ In s (lost e)).
    { intros e He. exact (safety n r t H Hpass e s He Hle). }
    clear - Hall. induction (unseen n r) as [| e l IH]; simpl; [reflexivity |].
    destruct (Hall e (or_introl eq_refl)) as [Hg Hl].
    rewrite IH by (intros; apply Hall; now right). unfold net. rewrite !occ_not_in by assumption. lia. }
  pose proof (truth_nonneg r s H). specialize (Hpass s Hle).
  unfold truth, view in *. rewrite (seen_unseen n r s) in *. lia.
Qed.

(** A cut of what has happened is the same cut of all that will happen. *)
Lemma seen_extend n l r :
  (forall p, (n p <= length (by_worker p r))%nat) -> seen n (l ++ r) = seen n r.
Proof.
  intros Hn. induction l as [| e l IH]; simpl; [reflexivity |].
  destruct (Nat.ltb_spec (length (by_worker (who e) (l ++ r))) (n (who e))) as [Hlt | _]; [| exact IH].
  specialize (Hn (who e)). unfold by_worker in *. rewrite filter_app, app_length in Hlt. lia.
Qed.

Lemma unseen_extend n l r :
  (forall p, (n p <= length (by_worker p r))%nat) -> unseen n (l ++ r) = l ++ unseen n r.
Proof.
  intros Hn. induction l as [| e l IH]; simpl; [reflexivity |].
  destruct (Nat.ltb_spec (length (by_worker (who e) (l ++ r))) (n (who e))) as [Hlt | _]; [| now rewrite IH].
  specialize (Hn (who e)). unfold by_worker in *. rewrite filter_app, app_length in Hlt. lia.
Qed.

(** Safety for ever (S0): whatever happens after, no pointstamp that could result in [t] is gained or lost. *)
Theorem safety_for_ever n l r t :
  legal (l ++ r) -> (forall p, (n p <= length (by_worker p r))%nat) -> passed n r t ->
  forall e s, In e l -> le s t -> ~ In s (gained e) /\ ~ In s (lost e).
Proof.
  intros H Hn Hpass e s He Hle.
  apply (safety n (l ++ r) t); [assumption | | | assumption].
  - intros x Hx. unfold view. rewrite seen_extend by assumption. now apply Hpass.
  - rewrite unseen_extend by assumption. apply in_or_app. now left.
Qed.

(** Frontiers do not regress: what one cut has passed, every later cut has passed (I5). *)
Theorem passed_monotone n m l r t :
  legal (l ++ r) -> (forall p, (n p <= length (by_worker p r))%nat) ->
  (forall p, (n p <= m p)%nat) -> passed n r t -> passed m (l ++ r) t.
Proof.
  intros H Hn Hnm Hpass s Hle.
  assert (Hnone : forall e, In e (unseen n (l ++ r)) -> ~ In s (gained e) /\ ~ In s (lost e)).
  { intros e He. apply (safety n (l ++ r) t); [assumption | | assumption | assumption].
    intros x Hx. unfold view. rewrite seen_extend by assumption. now apply Hpass. }
  specialize (Hpass s Hle). unfold view in *. rewrite <- (seen_extend n l r Hn) in Hpass.
  enough (total (seen m (l ++ r)) s = total (seen n (l ++ r)) s) by lia.
  clear - Hnone Hnm. induction (l ++ r) as [| e q IH]; simpl; [reflexivity |].
  simpl in Hnone.
  destruct (Nat.ltb_spec (length (by_worker (who e) q)) (n (who e))) as [Hlt | Hge].
  - specialize (Hnm (who e)). destruct (Nat.ltb_spec (length (by_worker (who e) q)) (m (who e))); [| lia].
    simpl. rewrite IH by assumption. reflexivity.
  - destruct (Hnone e (or_introl eq_refl)) as [Hg Hl].
    rewrite <- IH by (intros; apply Hnone; now right).
    destruct (_ <? _)%nat; simpl; [| reflexivity]. unfold net. rewrite !occ_not_in by assumption. lia.
Qed.

End Exchange.
