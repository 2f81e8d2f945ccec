(** Pointstamps of a flat graph: locations and times, and could-result-in along paths of summaries.

    An edge advances times by a partial function; where it gives nothing, nothing gets through. That steps are monotone and that
    every cycle advances makes could-result-in a partial order, which is all that [Exchange] and [Network] ask. *)
From Coq Require Import List ZArith Lia Bool.
From Timely Require Import Exchange Network.
Import ListNotations.

(** ** Edges with summaries *)

Section Edges.
Variable L T : Type.
Variable le : T -> T -> Prop.

(** The edges, with what each makes of a time: [None] if nothing arrives. *)
Variable edge : L -> (T -> option T) -> L -> Prop.

(** An earlier time gets through wherever a later one does, and not later. *)
Definition monotone (f : T -> option T) :=
  forall a b y, le a b -> f b = Some y -> exists x, f a = Some x /\ le x y.

Inductive edge_step : L * T -> L * T -> Prop :=
| along l t f m u : edge l f m -> f t = Some u -> edge_step (l, t) (m, u).

Theorem edges_earlier :
  (forall l f m, edge l f m -> monotone f) ->
  forall l t u b, le t u -> edge_step (l, u) b -> exists v, edge_step (l, t) (fst b, v) /\ le v (snd b).
Proof.
  intros Hmono l t u b Hle H. inversion H as [? ? f m w He Hf]; subst.
  destruct (Hmono l f m He t u w Hle Hf) as (x & Hx & Hxw). exists x. split; [econstructor; eassumption | assumption].
Qed.
End Edges.

(** ** Any graph, by its steps from pointstamp to pointstamp *)

Section Graph.

Variable L T : Type.
Variable le : T -> T -> Prop.
Hypothesis le_refl : forall a, le a a.
Hypothesis le_trans : forall a b c, le a b -> le b c -> le a c.
Hypothesis le_antisym : forall a b, le a b -> le b a -> a = b.

Definition stamp := (L * T)%type.

Variable step : stamp -> stamp -> Prop.

(** Steps are monotone. *)
Hypothesis step_earlier : forall l t u b, le t u -> step (l, u) b -> exists v, step (l, t) (fst b, v) /\ le v (snd b).

(** Along any path, an empty one too. *)
Inductive reaches : stamp -> stamp -> Prop :=
| reaches_here a : reaches a a
| reaches_step a b c : step a b -> reaches b c -> reaches a c.

(** Whatever goes round a cycle does not come back at the same time or before. (Within one scope it comes back later. A cycle
    that leaves a loop and enters it again, an epoch later, begins its rounds from 0.) *)
Hypothesis cycles_advance : forall l t u b, step (l, t) b -> reaches b (l, u) -> ~ le u t.

Definition could (a b : stamp) : Prop := exists u, reaches a (fst b, u) /\ le u (snd b).

Lemma reaches_trans a b c : reaches a b -> reaches b c -> reaches a c.
Proof. induction 1; [trivial | intros; eapply reaches_step; eauto]. Qed.

Lemma reaches_earlier a b : reaches a b -> forall t, le t (snd a) -> exists u, reaches (fst a, t) (fst b, u) /\ le u (snd b).
Proof.
  induction 1 as [a | [l x] b c Hs _ IH]; intros t Ht.
  - exists t. split; [constructor | assumption].
  - destruct (step_earlier l t x b Ht Hs) as (v & Hv & Hvb). destruct (IH v Hvb) as (u & Hu & Huc).
    exists u. split; [eapply reaches_step; eassumption | assumption].
Qed.

Theorem could_refl a : could a a.
Proof. exists (snd a). split; [destruct a; constructor | apply le_refl]. Qed.

Theorem could_trans a b c : could a b -> could b c -> could a c.
Proof.
  intros (u & Hau & Hu) (v & Hbv & Hv). destruct b as [l t]; simpl in *.
  destruct (reaches_earlier (l, t) _ Hbv u Hu) as (w & Hw & Hwv). simpl in *.
  exists w. split; [eapply reaches_trans; eassumption | eapply le_trans; eassumption].
Qed.

Theorem could_antisym a b : could a b -> could b a -> a = b.
Proof.
  destruct a as [l t], b as [m u]. intros (x & Hx & Hxu) (y & Hy & Hyt). simpl in *.
  destruct (reaches_earlier (m, u) _ Hy x Hxu) as (z & Hz & Hzy). simpl in *.
  assert (Hround : reaches (l, t) (l, z)) by (eapply reaches_trans; eassumption).
  inversion Hx as [| a b c Hs Hb]; subst.
  - inversion Hy as [| a b c Hs Hb]; subst.
    + f_equal. now apply le_antisym.
    + exfalso. apply (cycles_advance _ _ _ b Hs Hb). now apply le_trans with x.
  - exfalso. assert (Hback : reaches b (l, z)) by (eapply reaches_trans; eassumption).
    apply (cycles_advance _ _ _ b Hs Hback). now apply le_trans with y.
Qed.

(** A path that is not empty leads to another pointstamp. *)
Theorem could_strict a b c : step a b -> could b c -> could a c /\ a <> c.
Proof.
  intros Hs Hc. assert (Hac : could a c).
  { destruct Hc as (u & Hu & Hle). exists u. split; [eapply reaches_step; eassumption | assumption]. }
  split; [assumption |]. intros ->. destruct c as [l t], Hc as (u & Hu & Hle). simpl in *.
  now apply (cycles_advance l t u b Hs Hu).
Qed.

(** ** What an operator may do *)

Variable eq_dec : forall a b : stamp, {a = b} + {a <> b}.
Variable owned : stamp -> bool.
Variable workers : nat.
Variable start : nat -> list stamp.
Hypothesis start_owned : forall p s, In s (start p) -> owned s = true.

Notation event := (event stamp).

(** The contract as operators keep it, place by place (OC2): a capability from one at the same output at or before it, or from a
    message that was read; a message under a capability at the output that it leaves from, or from a message that was read. *)
Inductive allowed (r : list event) (e : event) : stamp -> Prop :=
| by_capability l t u :
    owned (l, t) = true -> (0 < held stamp eq_dec start (who stamp e) r (l, t))%Z -> le t u -> allowed r e (l, u)
| by_sending l t m u v :
    owned (l, t) = true -> (0 < held stamp eq_dec start (who stamp e) r (l, t))%Z ->
    step (l, t) (m, u) -> le u v -> allowed r e (m, v)
| by_reading l t m u v :
    In (l, t) (lost stamp e) -> step (l, t) (m, u) -> le u v -> allowed r e (m, v)
| by_answering l t m u n v w :
    In (l, t) (lost stamp e) -> step (l, t) (m, u) -> step (m, u) (n, v) -> le v w -> allowed r e (n, w).

Theorem contract_justifies r e s : allowed r e s -> justified stamp eq_dec could owned start r e s.
Proof.
  intros H. destruct H as [l t u Ho Hh Hle | l t m u v Ho Hh Hs Hle | l t m u v Hl Hs Hle | l t m u n v w Hl Hs Hs' Hle].
  - exists (l, t). left. split; [assumption | split; [| assumption]]. exists t. split; [constructor | assumption].
  - exists (l, t). left. split; [assumption | split; [| assumption]]. exists u.
    split; [eapply reaches_step; [eassumption | constructor] | assumption].
  - exists (l, t). right. split; [assumption |]. apply (could_strict (l, t) (m, u)); [assumption |].
    exists u. split; [constructor | assumption].
  - exists (l, t). right. split; [assumption |]. apply (could_strict (l, t) (m, u)); [assumption |].
    exists v. split; [eapply reaches_step; [eassumption | constructor] | assumption].
Qed.

(** ** Safety in the words of the book *)

Variable sends : nat -> nat -> bool.
Variable forwards : nat -> nat -> nat -> bool.
Variable before : nat -> nat -> nat.
Variable distance : nat -> nat -> nat.
Hypothesis sends_via : forall p b, sends p b = via before p b p.
Hypothesis forwards_via : forall p w b c, via before w b p = true -> forwards w b c = via before b c p.
Hypothesis before_nearer : forall p b, p <> b -> (distance p (before p b) < distance p b)%nat.

(** If no positive count of a worker could result in [(l, t)], no statement from then on has anything to do with it: no
    message arrives there, no capability, on any worker. *)
Theorem flat_safety acts st acts' st' b l t :
  log_steps stamp sends forwards acts (log_begin stamp) = Some st ->
  log_steps stamp sends forwards acts' st = Some st' ->
  legal stamp eq_dec could owned workers start (history_of stamp (list event) st') ->
  (forall a, (0 < counts stamp eq_dec workers start st b a)%Z -> ~ could a (l, t)) ->
  truth stamp eq_dec workers start (history_of stamp (list event) st') (l, t) = 0%Z /\
  exists more, history_of stamp (list event) st' = more ++ history_of stamp (list event) st /\
               forall e, In e more -> ~ In (l, t) (gained stamp e) /\ ~ In (l, t) (lost stamp e).
Proof.
  intros H H' Hlegal Hnone.
  destruct (network_safety stamp eq_dec could could_refl could_trans could_antisym owned workers start start_owned
              sends forwards before distance sends_via forwards_via before_nearer acts st acts' st' b (l, t) H H' Hlegal)
    as [Htruth (more & Heq & Hmore)].
  - intros a Ha. destruct (Z_lt_le_dec 0 (counts stamp eq_dec workers start st b a)) as [Hpos | Hneg]; [| assumption].
    exfalso. now apply (Hnone a).
  - split; [apply Htruth, could_refl |]. exists more. split; [assumption |]. intros e He. apply (Hmore e); [assumption | apply could_refl].
Qed.

End Graph.
