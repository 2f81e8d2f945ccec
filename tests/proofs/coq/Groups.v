(** The ways of progress that runs use: each worker to each other one, and processes that aggregate at one leader each.

    [Network] asks three things of who sends what to whom. They hold of both; [check] decides them for any other way of a given
    number of workers, and is what the groups of a real run are checked with. *)
From Coq Require Import List Arith Lia Bool.
From Timely Require Import Network.
Import ListNotations.

Definition goes (sends : nat -> nat -> bool) (forwards : nat -> nat -> nat -> bool) (before distance : nat -> nat -> nat) : Prop :=
  (forall p b, sends p b = via before p b p) /\
  (forall p w b c, via before w b p = true -> forwards w b c = via before b c p) /\
  (forall p b, p <> b -> distance p (before p b) < distance p b).

Ltac by_cases :=
  repeat match goal with
  | |- context [(?a =? ?b)] => destruct (Nat.eqb_spec a b); subst; simpl in *
  | H : context [(?a =? ?b)] |- _ => destruct (Nat.eqb_spec a b); subst; simpl in *
  end; try congruence; try lia.

(** *** Direct *)

Theorem direct : goes (fun p b => negb (p =? b)) (fun _ _ _ => false) (fun p _ => p) (fun p b => if p =? b then 0 else 1).
Proof. repeat split; intros; unfold via in *; by_cases. Qed.

(** *** One leader for each process *)

Section Process.
Variable lead : nat -> nat.
Hypothesis lead_lead : forall p, lead (lead p) = lead p.

Definition together p b := lead p =? lead b.
Definition leads p := p =? lead p.
Definition linked p b := negb (p =? b) && (together p b || (leads p && leads b)).
Definition before p b := if together p b then p else if leads b then lead p else lead b.
Definition distance p b :=
  if p =? b then 0 else if together p b then 1 else (if leads p then 1 else 2) + (if leads b then 0 else 1).
Definition forwards w b c := linked b c && xorb (together w b) (together b c).

Theorem process : goes linked forwards before distance.
Proof.
  repeat split.
  - intros p b. unfold via, linked, before, together, leads. pose proof (lead_lead p). pose proof (lead_lead b). by_cases.
  - intros p w b c. unfold via, forwards, linked, before, together, leads.
    pose proof (lead_lead p). pose proof (lead_lead b). pose proof (lead_lead c). pose proof (lead_lead w). by_cases.
  - intros p b. unfold before, distance, together, leads.
    pose proof (lead_lead p). pose proof (lead_lead b). by_cases.
Qed.
End Process.

(** *** Any other, for so many workers *)

Definition below n := seq 0 n.

Definition check (n : nat) (sends : nat -> nat -> bool) (forwards : nat -> nat -> nat -> bool) (before distance : nat -> nat -> nat) :=
  forallb (fun p => forallb (fun b =>
    Bool.eqb (sends p b) (via before p b p) &&
    ((p =? b) || ((distance p (before p b) <? distance p b) && (before p b <? n))) &&
    forallb (fun w => negb (via before w b p) || forallb (fun c => Bool.eqb (forwards w b c) (via before b c p)) (below n))
      (below n)) (below n)) (below n).

Theorem check_goes n sends forwards before distance :
  check n sends forwards before distance = true ->
  forall p b, p < n -> b < n ->
    sends p b = via before p b p /\
    (p <> b -> distance p (before p b) < distance p b /\ before p b < n) /\
    (forall w c, w < n -> c < n -> via before w b p = true -> forwards w b c = via before b c p).
Proof.
  unfold check, below. intros H p b Hp Hb.
  rewrite forallb_forall in H. specialize (H p ltac:(apply in_seq; lia)).
  rewrite forallb_forall in H. specialize (H b ltac:(apply in_seq; lia)).
  rewrite !andb_true_iff in H. destruct H as [[Hs Hd] Hf]. split; [now apply eqb_prop | split].
  - intros Hne. apply orb_true_iff in Hd. destruct Hd as [Hd | Hd]; [apply Nat.eqb_eq in Hd; congruence |].
    rewrite andb_true_iff, !Nat.ltb_lt in Hd. exact Hd.
  - intros w c Hw Hc Hvia. rewrite forallb_forall in Hf. specialize (Hf w ltac:(apply in_seq; lia)).
    rewrite Hvia in Hf. simpl in Hf. rewrite forallb_forall in Hf. apply eqb_prop. apply Hf. apply in_seq. lia.
Qed.

(** What [check] accepts goes, with each worker from [n] on by itself. *)
Theorem check_suffices n sends forwards before distance :
  check n sends forwards before distance = true ->
  exists sends' forwards' before' distance', goes sends' forwards' before' distance' /\
    (forall p b, p < n -> b < n -> sends' p b = sends p b) /\
    (forall w b c, w < n -> b < n -> c < n -> forwards' w b c = forwards w b c).
Proof.
  intros H. pose proof (check_goes n sends forwards before distance H) as Hgo.
  set (inside := fun p b => (p <? n) && (b <? n)).
  set (before' := fun p b => if inside p b then before p b else p).
  set (distance' := fun p b => if p =? b then 0 else if inside p b then S (distance p b) else 1).
  exists (fun p b => via before' p b p), (fun w b c => inside w b && (c <? n) && forwards w b c), before', distance'.
  assert (Hin : forall p b, p < n -> b < n -> before' p b = before p b).
  { intros p b Hp Hb. unfold before', inside. apply Nat.ltb_lt in Hp, Hb. now rewrite Hp, Hb. }
  assert (Hout : forall p b, ~ (p < n /\ b < n) -> before' p b = p).
  { intros p b Hpb. unfold before', inside. destruct (Nat.ltb_spec p n), (Nat.ltb_spec b n); simpl; [tauto | reflexivity..]. }
  split; [split; [| split] | split].
  - reflexivity.
  - intros p w b c Hvia. unfold via in Hvia. apply andb_true_iff in Hvia. destruct Hvia as [Hne Hw].
    apply negb_true_iff, Nat.eqb_neq in Hne. apply Nat.eqb_eq in Hw.
    destruct (Nat.ltb_spec p n) as [Hp | Hp].
    + destruct (Nat.ltb_spec b n) as [Hb | Hb].
      * rewrite Hin in Hw by assumption. destruct (Hgo p b Hp Hb) as (_ & Hd & Hf). destruct (Hd Hne) as [_ Hwn].
        rewrite Hw in Hwn. destruct (Nat.ltb_spec c n) as [Hc | Hc].
        -- rewrite (Hf w c Hwn Hc) by (unfold via; apply Nat.eqb_neq in Hne; apply Nat.eqb_eq in Hw; now rewrite Hne, Hw).
           unfold inside. apply Nat.ltb_lt in Hwn, Hb. rewrite Hwn, Hb. simpl. unfold via. now rewrite Hin.
        -- rewrite andb_false_r. simpl. unfold via. rewrite Hout by lia.
           destruct (Nat.eqb_spec p b); [congruence | now rewrite andb_false_r].
      * unfold inside. destruct (Nat.ltb_spec b n); [lia |]. rewrite andb_false_r. simpl. unfold via.
        destruct (Nat.ltb_spec c n) as [Hc | Hc].
        -- rewrite Hin by assumption. destruct (Nat.eqb_spec p c); [reflexivity |]. simpl.
           destruct (Hgo p c Hp Hc) as (_ & Hd & _). destruct (Hd n0) as [_ Hlt].
           destruct (Nat.eqb_spec (before p c) b); [lia | reflexivity].
        -- rewrite Hout by lia. destruct (Nat.eqb_spec p b); [congruence | now rewrite andb_false_r].
    + rewrite Hout in Hw by lia. subst w. unfold inside. destruct (Nat.ltb_spec p n); [lia |]. simpl.
      unfold via. rewrite Hout by lia. destruct (Nat.eqb_spec p b); [congruence | now rewrite andb_false_r].
  - intros p b Hne. unfold distance'. destruct (Nat.eqb_spec p b); [congruence |].
    destruct (Nat.ltb_spec p n) as [Hp | Hp]; [destruct (Nat.ltb_spec b n) as [Hb | Hb] |].
    + rewrite Hin by assumption. destruct (Hgo p b Hp Hb) as (_ & Hd & _). destruct (Hd Hne) as [Hlt Hbn].
      destruct (Nat.eqb_spec p (before p b)); [unfold inside; apply Nat.ltb_lt in Hp, Hb; rewrite Hp, Hb; simpl; lia |].
      unfold inside. apply Nat.ltb_lt in Hp, Hb, Hbn. rewrite Hp, Hb, Hbn. simpl. lia.
    + rewrite Hout by lia. rewrite Nat.eqb_refl. unfold inside. destruct (Nat.ltb_spec b n); [lia |]. rewrite andb_false_r. lia.
    + rewrite Hout by lia. rewrite Nat.eqb_refl. unfold inside. destruct (Nat.ltb_spec p n); [lia |]. simpl. lia.
  - intros p b Hp Hb. destruct (Hgo p b Hp Hb) as (-> & _). unfold via. now rewrite Hin.
  - intros w b c Hw Hb Hc. unfold inside. apply Nat.ltb_lt in Hw, Hb, Hc. now rewrite Hw, Hb, Hc.
Qed.
