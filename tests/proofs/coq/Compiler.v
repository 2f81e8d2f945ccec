(** The compiler: contraction, the feedback cut and one pass in the order of cells give exactly the frontiers of the graph.

    A frontier is a set of minimal times; here it is the set of all times at or after these, so that to compare frontiers is to
    compare sets. Each step of the compiler takes locations away, and keeps the frontiers of the others: that is what [Scopes]
    proves of nested scopes. What is left of a component are the members of a feedback set, which are eliminated one by one; to
    go through them in this order, and back, is as good as any path. Then no cell depends on a later one, and one pass does it. *)
From Coq Require Import List ZArith Lia Bool Arith.
From Timely Require Import Exchange Network Graph Scopes.
Import ListNotations.

Section Compiler.

Variable L T : Type.
Variable le : T -> T -> Prop.
Hypothesis le_refl : forall a, le a a.
Hypothesis le_trans : forall a b c, le a b -> le b c -> le a c.
Hypothesis le_antisym : forall a b, le a b -> le b a -> a = b.
Variable step : L * T -> L * T -> Prop.
Hypothesis step_earlier : forall l t u b, le t u -> step (l, u) b -> exists v, step (l, t) (fst b, v) /\ le v (snd b).
Hypothesis cycles_advance : forall l t u b, step (l, t) b -> reaches L T step b (l, u) -> le t u /\ t <> u.

Notation stamp := (L * T)%type.
Notation reaches := (reaches L T step).
Notation could := (could L T le step).

(** The same location, no later. *)
Definition no_later (a b : stamp) := fst a = fst b /\ le (snd a) (snd b).

Lemma no_later_refl a : no_later a a.
Proof. split; [reflexivity | apply le_refl]. Qed.

Lemma no_later_trans a b c : no_later a b -> no_later b c -> no_later a c.
Proof. intros [Hab Hle] [Hbc Hle']. split; [congruence | eapply le_trans; eassumption]. Qed.

Lemma could_no_later a b : could a b <-> exists c, reaches a c /\ no_later c b.
Proof.
  split.
  - intros (u & Hu & Hle). exists (fst b, u). split; [assumption | now split].
  - intros ([l u] & Hu & Hl & Hle). simpl in *. subst. exists u. now split.
Qed.

(** The frontier at a location, for a set of pointstamps that count. *)
Definition frontier (positive : stamp -> Prop) (b : stamp) : Prop := exists a, positive a /\ could a b.

(** ** Contraction

    A location with one way on moves its counts along that way. What else led to it leads on. *)
Section Contraction.
Variable x y : L.
Variable f : T -> option T.
Variable is_x : L -> bool.
Hypothesis is_x_spec : forall l, is_x l = true <-> l = x.
Hypothesis only_way : forall t b, step (x, t) b <-> fst b = y /\ f t = Some (snd b).
Hypothesis elsewhere : x <> y.

Lemma contracted_leaves t b : leaves L T step is_x (x, t) b <-> fst b = y /\ f t = Some (snd b).
Proof.
  assert (Hy : is_x y = false).
  { destruct (is_x y) eqn:H; [| reflexivity]. apply is_x_spec in H. congruence. }
  split.
  - intros H. remember (x, t) as a eqn:Ha. destruct H as [a b _ Hs _ | a b c _ Hs Hl]; subst a; apply only_way in Hs.
    + assumption.
    + destruct Hs as [Hb _]. apply leaves_in in Hl. unfold is_in in Hl. rewrite Hb in Hl. congruence.
  - intros [Hb Hf]. apply leaves_now.
    + unfold is_in. simpl. now apply is_x_spec.
    + apply only_way. now split.
    + unfold is_out. now rewrite Hb.
Qed.

Theorem contraction positive b :
  fst b <> x ->
  (frontier positive b <->
   exists a, ((positive a /\ fst a <> x) \/ (exists t u, positive (x, t) /\ f t = Some u /\ a = (y, u))) /\
             parent_could L T le step is_x a b).
Proof.
  intros Hb. assert (Hout : is_out L T is_x b).
  { unfold is_out. destruct (is_x (fst b)) eqn:H; [| reflexivity]. apply is_x_spec in H. congruence. }
  unfold frontier. rewrite (projection_outward L T le step is_x positive b Hout).
  split; intros (a & Ha & Hc); exists a; (split; [| assumption]).
  - destruct Ha as [[Hp Ho] | ([l t] & Hp & Hi & Hl)].
    + left. split; [assumption |]. intros Hx. apply is_x_spec in Hx. unfold is_out in Ho. congruence.
    + right. unfold is_in in Hi. apply is_x_spec in Hi. simpl in Hi. subst l. apply contracted_leaves in Hl.
      exists t, (snd a). destruct Hl as [Hy Hf]. repeat split; try assumption. destruct a. simpl in *. now subst.
  - destruct Ha as [[Hp Ho] | (t & u & Hp & Hf & ->)].
    + left. split; [assumption |]. unfold is_out. destruct (is_x (fst a)) eqn:H; [| reflexivity]. apply is_x_spec in H. congruence.
    + right. exists (x, t). split; [assumption |]. split; [unfold is_in; now apply is_x_spec | now apply contracted_leaves].
Qed.
End Contraction.

(** ** The way of a location back to itself is left out *)

Definition proper (a b : stamp) := step a b /\ fst a <> fst b.

Variable location_dec : forall l m : L, {l = m} + {l <> m}.

Lemma proper_earlier l t u b : le t u -> proper (l, u) b -> exists v, proper (l, t) (fst b, v) /\ le v (snd b).
Proof.
  intros Hle [Hs Hne]. destruct (step_earlier l t u b Hle Hs) as (v & Hv & Hvb). exists v. split; [now split | assumption].
Qed.

Lemma proper_reaches a b : reaches a b -> exists c, Graph.reaches L T proper a c /\ no_later c b.
Proof.
  induction 1 as [a | [l t] [m u] c Hs Hr IH].
  - exists a. split; [constructor | apply no_later_refl].
  - destruct IH as (d & Hd & Hdc). destruct (location_dec l m) as [<- | Hne].
    + (* the loop advances: to leave it out is no later *)
      destruct (cycles_advance l t u (l, u) Hs (reaches_here L T step _)) as [Hle _].
      destruct (reaches_earlier L T le proper proper_earlier _ _ Hd t Hle) as (v & Hv & Hvd). simpl in *.
      exists (fst d, v). split; [assumption |]. apply no_later_trans with d; [now split | assumption].
    + exists d. split; [| assumption]. eapply reaches_step; [split; eassumption | assumption].
Qed.

Theorem loops_add_nothing a b : could a b <-> Graph.could L T le proper a b.
Proof.
  split.
  - intros (u & Hu & Hle). destruct (proper_reaches _ _ Hu) as ([m v] & Hv & Hm & Hvu). simpl in *. subst.
    exists v. split; [assumption | eapply le_trans; eassumption].
  - intros (u & Hu & Hle). exists u. split; [| assumption]. clear Hle.
    induction Hu as [| a c d [Hs _] _ IH]; [constructor | eapply reaches_step; eassumption].
Qed.

(** ** The feedback cut

    The rest of a component, without the set, is laid out twice: before the set, where what comes through the set is left out, and
    after it. The set has the ways through the rest. *)
Section Cut.
Variable in_rest : L -> bool.

(** The cell of a location of the rest before the set: what gets there without the set. *)
Definition before_set (positive : stamp -> Prop) (b : stamp) :=
  exists a c, positive a /\ stays L T step in_rest a c /\ no_later c b.

(** What enters a member of the set, from its own counts and from the cells before the set, and goes on through ways of the set. *)
Definition at_set (positive : stamp -> Prop) (b : stamp) :=
  exists a, reported L T step in_rest positive a /\ parent_could L T le step in_rest a b.

(** The cell after the set: that before it, and what the set leads to. *)
Definition after_set (positive : stamp -> Prop) (b : stamp) :=
  before_set positive b \/
  exists c d e, is_out L T in_rest c /\ at_set positive c /\ step c d /\ stays L T step in_rest d e /\ no_later e b.

Theorem cut_set positive b : is_out L T in_rest b -> (frontier positive b <-> at_set positive b).
Proof. intros H. apply projection_outward. assumption. Qed.

Theorem cut_rest positive b : is_in L T in_rest b -> (frontier positive b <-> after_set positive b).
Proof.
  intros H. unfold frontier, after_set, before_set, at_set.
  rewrite (projection_inward L T le le_refl le_trans step step_earlier in_rest positive b H).
  split.
  - intros [(a & u & Ha & Hs & Hle) | (a & c & t & d & u & Ha & Hc & Hp & Hs & Hst & Hle)].
    + left. exists a, (fst b, u). split; [assumption |]. split; [assumption | now split].
    + right. exists (c, t), d, (fst b, u). split; [assumption |]. split; [exists a; auto |].
      split; [assumption |]. split; [assumption | now split].
  - intros [(a & [l u] & Ha & Hs & Hl & Hle) | ([c t] & d & [l u] & Hc & (a & Ha & Hp) & Hs & Hst & Hl & Hle)]; simpl in *; subst l.
    + left. exists a, u. auto.
    + right. exists a, c, t, d, u. repeat (split; [assumption |]). assumption.
Qed.
End Cut.

(** ** Elimination of the members of the set, in the order of their numbers *)

Section Elimination.
Variable number : L -> nat.
Hypothesis numbers : forall l m, number l = number m -> l = m.

(** A way between two members on which all members between have numbers below [i]. *)
Inductive within (i : nat) : stamp -> stamp -> Prop :=
| within_one a b : step a b -> within i a b
| within_more a b c : step a b -> (number (fst b) < i)%nat -> within i b c -> within i a c.

Lemma within_reaches i a b : within i a b -> exists c, step a c /\ reaches c b.
Proof.
  induction 1 as [a b Hs | a b c Hs _ _ (d & Hd & Hdc)].
  - exists b. split; [assumption | constructor].
  - exists b. split; [assumption | eapply reaches_step; eassumption].
Qed.

Lemma within_earlier i a b : within i a b -> forall a', no_later a' a -> exists b', within i a' b' /\ no_later b' b.
Proof.
  induction 1 as [[l x] b Hs | [l x] b c Hs Hi _ IH]; intros [l' t] [Hl Ht]; simpl in *; subst l'.
  - destruct (step_earlier l t x b Ht Hs) as (v & Hv & Hle).
    exists (fst b, v). split; [now constructor | now split].
  - destruct (step_earlier l t x b Ht Hs) as (v & Hv & Hle).
    destruct (IH (fst b, v)) as (c' & Hc & Hcc); [now split |].
    exists c'. split; [eapply within_more; eassumption | assumption].
Qed.

(** One step of the elimination: a way that may pass [j] does not pass it, or goes to it and from it once. A way back to [j] between
    strictly advances, so it is left out. *)
Lemma through_once j a b :
  within (S j) a b ->
  (exists b', within j a b' /\ no_later b' b) \/
  (exists c b', number (fst c) = j /\ within j a c /\ within j c b' /\ no_later b' b).
Proof.
  induction 1 as [a b Hs | a x b Hs Hx Hrest IH].
  - left. exists b. split; [now constructor | apply no_later_refl].
  - destruct (Nat.eq_dec (number (fst x)) j) as [Hj | Hj].
    + (* the first step leads to [j] *)
      right. destruct IH as [(b' & Hb & Hle) | (c & b' & Hc & Hxc & Hcb & Hle)].
      * exists x, b'. repeat split; try assumption; try apply Hle. now constructor.
      * (* and comes back to it: later *)
        destruct x as [l t], c as [m u]. simpl in *. assert (m = l) by (apply numbers; congruence). subst m.
        destruct (within_reaches j _ _ Hxc) as (y & Hy & Hyr).
        destruct (cycles_advance l t u y Hy Hyr) as [Htu _].
        destruct (within_earlier j _ _ Hcb (l, t)) as (b2 & Hb2 & Hle2); [now split |].
        exists (l, t), b2. split; [assumption |]. split; [now constructor |]. split; [assumption | eapply no_later_trans; eassumption].
    + assert (Hlt : (number (fst x) < j)%nat) by lia.
      destruct IH as [(b' & Hb & Hle) | (c & b' & Hc & Hxc & Hcb & Hle)].
      * left. exists b'. split; [eapply within_more; eassumption | assumption].
      * right. exists c, b'. repeat split; try assumption; try apply Hle. eapply within_more; eassumption.
Qed.

Lemma within_join i a c b : within i a c -> (number (fst c) < i)%nat -> within i c b -> within i a b.
Proof. induction 1; intros; eapply within_more; eauto. Qed.

Lemma within_weaken i j a b : (i <= j)%nat -> within i a b -> within j a b.
Proof. intros H. induction 1; [now constructor | eapply within_more; eauto; lia]. Qed.

Theorem elimination_step j a b :
  (exists b', within (S j) a b' /\ no_later b' b) <->
  (exists b', within j a b' /\ no_later b' b) \/
  (exists c b', number (fst c) = j /\ within j a c /\ within j c b' /\ no_later b' b).
Proof.
  split.
  - intros (b' & Hb & Hle). destruct (through_once j a b' Hb) as [(b2 & H2 & Hle2) | (c & b2 & Hc & Hac & Hcb & Hle2)].
    + left. exists b2. split; [assumption | eapply no_later_trans; eassumption].
    + right. exists c, b2. repeat (split; [assumption |]). eapply no_later_trans; eassumption.
  - intros [(b' & Hb & Hle) | (c & b' & Hc & Hac & Hcb & Hle)]; exists b'; (split; [| assumption]).
    + eapply within_weaken; [| eassumption]. lia.
    + apply within_join with c; [eapply within_weaken; [| eassumption]; lia | lia | eapply within_weaken; [| eassumption]; lia].
Qed.

(** Onwards: to a member eliminated later, through members eliminated before this one. *)
Inductive forth : stamp -> stamp -> Prop :=
| forth_here a : forth a a
| forth_on a b c : within (number (fst a)) a b -> (number (fst a) < number (fst b))%nat -> forth b c -> forth a c.

(** Back: from a member eliminated later. *)
Inductive back : stamp -> stamp -> Prop :=
| back_here a : back a a
| back_on a b c : back a b -> within (number (fst c)) b c -> (number (fst c) < number (fst b))%nat -> back a c.

Lemma forth_trans a b c : forth a b -> forth b c -> forth a c.
Proof. induction 1; [trivial | intros; eapply forth_on; eauto]. Qed.

Lemma back_trans a b c : back a b -> back b c -> back a c.
Proof.
  intros Hab H. induction H as [x | x y z _ IH Hw Hlt]; [assumption |].
  eapply back_on; [apply IH; assumption | eassumption | assumption].
Qed.

Lemma forth_up j : forall a b, within j a b -> (number (fst a) < j)%nat -> (j <= number (fst b))%nat ->
  exists b', forth a b' /\ no_later b' b.
Proof.
  induction j as [| j IH]; intros a b Hw Ha Hb; [lia |].
  destruct (Nat.eq_dec (number (fst a)) j) as [Haj | Haj].
  - (* the start is the last that may be passed: leave out the ways back to it *)
    assert (Hdirect : exists b', within j a b' /\ no_later b' b).
    { destruct (through_once j a b Hw) as [Hdone | (c & b' & Hc & Hac & Hcb & Hle)]; [assumption |].
      destruct a as [l t], c as [m u]. simpl in *. assert (m = l) by (apply numbers; congruence). subst m.
      destruct (within_reaches j _ _ Hac) as (y & Hy & Hyr).
      destruct (cycles_advance l t u y Hy Hyr) as [Htu _].
      destruct (within_earlier j _ _ Hcb (l, t)) as (b2 & Hb2 & Hle2); [now split |].
      exists b2. split; [assumption | eapply no_later_trans; eassumption]. }
    destruct Hdirect as (b' & Hb' & Hle). exists b'. split; [| assumption].
    eapply forth_on; [rewrite Haj; eassumption | destruct Hle as [-> _]; lia | constructor].
  - assert (Hlt : (number (fst a) < j)%nat) by lia.
    destruct (through_once j a b Hw) as [(b' & Hb' & Hle) | (c & b' & Hc & Hac & Hcb & Hle)].
    + destruct (IH a b' Hb' Hlt) as (b2 & H2 & Hle2); [destruct Hle as [-> _]; lia |].
      exists b2. split; [assumption | eapply no_later_trans; eassumption].
    + destruct (IH a c Hac Hlt) as (c' & Hc' & Hcc); [lia |].
      destruct (within_earlier j c b' Hcb c' Hcc) as (b2 & Hb2 & Hle2).
      assert (Hn : number (fst c') = j) by (destruct Hcc as [-> _]; assumption).
      exists b2. split; [| eapply no_later_trans; eassumption].
      apply forth_trans with c'; [assumption |]. eapply forth_on; [rewrite Hn; eassumption | | constructor].
      destruct Hle2 as [-> _], Hle as [-> _]. lia.
Qed.

Lemma back_earlier a b : back a b -> forall a', no_later a' a -> exists b', back a' b' /\ no_later b' b.
Proof.
  induction 1 as [a | a b c _ IH Hw Hlt]; intros a' Ha.
  - exists a'. split; [constructor | assumption].
  - destruct (IH a' Ha) as (b' & Hb & Hle). destruct (within_earlier _ _ _ Hw b' Hle) as (c' & Hc & Hcc).
    exists c'. split; [| assumption]. eapply back_on; [eassumption | destruct Hcc as [-> _]; assumption |].
    destruct Hcc as [-> _], Hle as [-> _]. assumption.
Qed.

Lemma back_down j : forall a b, within j a b -> (j <= number (fst a))%nat -> (number (fst b) < j)%nat ->
  exists b', back a b' /\ no_later b' b.
Proof.
  induction j as [| j IH]; intros a b Hw Ha Hb; [lia |].
  destruct (Nat.eq_dec (number (fst b)) j) as [Hbj | Hbj].
  - assert (Hdirect : exists b', within j a b' /\ no_later b' b).
    { destruct (through_once j a b Hw) as [Hdone | (c & b' & Hc & Hac & Hcb & Hle)]; [assumption |].
      exists c. split; [assumption |]. destruct b as [l t], c as [m u], b' as [n v]. simpl in *.
      destruct Hle as [Hn Hvt]. simpl in *. subst n. assert (m = l) by (apply numbers; congruence). subst m.
      destruct (within_reaches j _ _ Hcb) as (y & Hy & Hyr).
      destruct (cycles_advance l u v y Hy Hyr) as [Huv _]. split; [reflexivity | simpl; eapply le_trans; eassumption]. }
    destruct Hdirect as (b' & Hb' & Hle). exists b'. split; [| assumption].
    assert (Hn : number (fst b') = j) by (destruct Hle as [-> _]; assumption).
    eapply back_on; [constructor | rewrite Hn; assumption | lia].
  - assert (Hlt : (number (fst b) < j)%nat) by lia.
    destruct (through_once j a b Hw) as [(b' & Hb' & Hle) | (c & b' & Hc & Hac & Hcb & Hle)].
    + destruct (IH a b' Hb') as (b2 & H2 & Hle2); [lia | destruct Hle as [-> _]; lia |].
      exists b2. split; [assumption | eapply no_later_trans; eassumption].
    + destruct (IH c b' Hcb) as (b2 & H2 & Hle2); [lia | destruct Hle as [-> _]; lia |].
      exists b2. split; [| eapply no_later_trans; eassumption].
      apply back_trans with c; [| assumption]. eapply back_on; [constructor | rewrite Hc; assumption | lia].
Qed.

(** All that edges join have numbers below [k]. *)
Definition numbered_below (k : nat) := forall a b, step a b -> (number (fst a) < k)%nat /\ (number (fst b) < k)%nat.

Lemma reaches_within k a b : numbered_below k -> reaches a b -> a = b \/ within k a b.
Proof.
  intros Hk H. induction H as [| a c b Hs _ [-> | Hw]]; [now left | right; now constructor |].
  right. eapply within_more; [eassumption | now apply (Hk a c) | assumption].
Qed.

Lemma within_ends k i a b : numbered_below k -> within i a b -> (number (fst a) < k)%nat /\ (number (fst b) < k)%nat.
Proof.
  intros Hk. induction 1 as [a b Hs | a c b Hs _ _ [_ IH]]; [now apply Hk | split; [now apply (Hk a c) | assumption]].
Qed.

(** Forth through the members in the order of their elimination, and back: as good as any path. *)
Theorem forth_and_back k a b :
  numbered_below k ->
  (could a b <-> exists c d, forth a c /\ back c d /\ no_later d b).
Proof.
  intros Hk. split.
  - rewrite could_no_later. intros (b0 & Hr & Hle0).
    assert (Hmain : exists c d, forth a c /\ back c d /\ no_later d b0).
    { destruct (reaches_within k a b0 Hk Hr) as [-> | Hw].
      { exists b0, b0. split; [constructor | split; [constructor | apply no_later_refl]]. }
      destruct (within_ends k k a b0 Hk Hw) as [Ha Hb]. clear Hr Hk Hle0.
      revert a b0 Hw Ha Hb. induction k as [| k IH]; intros a b0 Hw Ha Hb; [lia |].
      assert (Hself : forall a b, number (fst a) = k -> number (fst b) = k -> reaches a b -> no_later a b).
      { intros [l t] [m u] Hl Hm Hr. simpl in *. assert (m = l) by (apply numbers; congruence). subst m.
        split; [reflexivity |]. simpl. inversion Hr as [| x y z Hs Hyr]; subst; [apply le_refl |].
        destruct (cycles_advance l t u y Hs Hyr) as [Htu _]. exact Htu. }
      assert (Hfrom : forall a b, number (fst a) = k -> within k a b -> (number (fst b) < S k)%nat ->
                      exists d, back a d /\ no_later d b).
      { intros x z Hx Hxz Hz. destruct (Nat.eq_dec (number (fst z)) k) as [Hzk | Hzk].
        - exists x. split; [constructor |]. apply Hself; [assumption | assumption |].
          destruct (within_reaches k _ _ Hxz) as (y & Hy & Hyr). eapply reaches_step; eassumption.
        - apply (back_down k x z Hxz); lia. }
      assert (Hto : forall a c, (number (fst a) < S k)%nat -> number (fst c) = k -> within k a c ->
                    exists c', forth a c' /\ no_later c' c).
      { intros x z Hx Hz Hxz. destruct (Nat.eq_dec (number (fst x)) k) as [Hxk | Hxk].
        - exists x. split; [constructor |]. apply Hself; [assumption | assumption |].
          destruct (within_reaches k _ _ Hxz) as (y & Hy & Hyr). eapply reaches_step; eassumption.
        - apply (forth_up k x z Hxz); lia. }
      destruct (through_once k a b0 Hw) as [(b' & Hb' & Hle) | (c & b' & Hc & Hac & Hcb & Hle)].
      - assert (Hbn : number (fst b') = number (fst b0)) by (destruct Hle as [-> _]; reflexivity).
        destruct (Nat.eq_dec (number (fst a)) k) as [Hak | Hak]; [| destruct (Nat.eq_dec (number (fst b0)) k) as [Hbk | Hbk]].
        + destruct (Hfrom a b' Hak Hb') as (d & Hd & Hdb); [lia |]. exists a, d.
          split; [constructor | split; [assumption | eapply no_later_trans; eassumption]].
        + destruct (Hto a b' Ha) as (c' & Hc' & Hcc); [lia | assumption |]. exists c', c'.
          split; [assumption | split; [constructor | eapply no_later_trans; eassumption]].
        + destruct (IH a b' Hb') as (c & d & Hac & Hcd & Hdb); [lia | lia |]. exists c, d.
          split; [assumption | split; [assumption | eapply no_later_trans; eassumption]].
      - assert (Hbn : number (fst b') = number (fst b0)) by (destruct Hle as [-> _]; reflexivity).
        destruct (Hto a c Ha Hc Hac) as (c' & Hc' & Hcc).
        destruct (Hfrom c b' Hc Hcb) as (d & Hd & Hdb); [lia |].
        destruct (back_earlier c d Hd c' Hcc) as (d' & Hd' & Hdd).
        exists c', d'. split; [assumption | split; [assumption |]].
        eapply no_later_trans; [eassumption |]. eapply no_later_trans; eassumption. }
    destruct Hmain as (c & d & Hac & Hcd & Hdb). exists c, d. split; [assumption | split; [assumption | eapply no_later_trans; eassumption]].
  - intros (c & d & Hac & Hcd & Hdb). apply could_no_later. exists d. split; [| assumption].
    assert (Hw : forall i x y, within i x y -> reaches x y).
    { intros i x y Hxy. destruct (within_reaches i x y Hxy) as (z & Hz & Hzy). eapply reaches_step; eassumption. }
    apply reaches_trans with c.
    + clear - Hac Hw. induction Hac; [constructor | eapply reaches_trans; [eapply Hw; eassumption | assumption]].
    + clear - Hcd Hw. induction Hcd; [constructor | eapply reaches_trans; [eassumption | eapply Hw; eassumption]].
Qed.
End Elimination.

End Compiler.

(** ** A component, laid out

    The frontier of a member of the feedback set: what enters it, forth through the members, and back. The ways between members are
    those of the parent of the rest. With [cut_rest] this is every cell of a component. *)
Section Component.
Variable L T : Type.
Variable le : T -> T -> Prop.
Hypothesis le_refl : forall a, le a a.
Hypothesis le_trans : forall a b c, le a b -> le b c -> le a c.
Variable step : L * T -> L * T -> Prop.
Hypothesis step_earlier : forall l t u b, le t u -> step (l, u) b -> exists v, step (l, t) (fst b, v) /\ le v (snd b).
Hypothesis cycles_advance : forall l t u b, step (l, t) b -> reaches L T step b (l, u) -> le t u /\ t <> u.

Theorem component_exact (in_rest : L -> bool) (number : L -> nat) k positive b :
  (forall l m, number l = number m -> l = m) -> numbered_below L T step number k ->
  is_out L T in_rest b ->
  let ways := parent_step L T step in_rest in
  (frontier L T le step positive b <->
   exists a c d, reported L T step in_rest positive a /\ forth L T ways number a c /\ back L T ways number c d /\ no_later L T le d b).
Proof.
  intros Hnumber Hk Hout ways. rewrite (cut_set L T le step in_rest positive b Hout). unfold at_set, parent_could. fold ways.
  assert (Hways : forall l t u x, le t u -> ways (l, u) x -> exists v, ways (l, t) (fst x, v) /\ le v (snd x)).
  { apply (parent_earlier L T le step step_earlier in_rest). }
  assert (Hcycles : forall l t u x, ways (l, t) x -> Graph.reaches L T ways x (l, u) -> le t u /\ t <> u).
  { apply (parent_cycles_advance L T step in_rest (fun t u => le t u /\ t <> u) cycles_advance). }
  assert (Hbelow : numbered_below L T ways number k).
  { intros x y Hxy. destruct (parent_step_reaches L T step in_rest x y Hxy) as (z & Hxz & Hzy). split; [now apply (Hk x z) |].
    clear Hxy. revert x Hxz. induction Hzy as [z | z w y Hzw _ IH]; intros x Hxz; [now apply (Hk x z) | exact (IH z Hzw)]. }
  split.
  - intros (a & Ha & Hc). apply (forth_and_back L T le le_refl le_trans ways Hways Hcycles number Hnumber k a b Hbelow) in Hc.
    destruct Hc as (c & d & Hc). exists a, c, d. tauto.
  - intros (a & c & d & Ha & Hc). exists a. split; [assumption |].
    apply (forth_and_back L T le le_refl le_trans ways Hways Hcycles number Hnumber k a b Hbelow). exists c, d. tauto.
Qed.
End Component.

(** ** One pass

    Cells are numbered so that each depends on earlier ones only. Here all is a program, which the link with the code runs. *)
Section Pass.

Variable T : Type.
Variable leb : T -> T -> bool.
Hypothesis leb_refl : forall a, leb a a = true.
Hypothesis leb_trans : forall a b c, leb a b = true -> leb b c = true -> leb a c = true.

(** Insert into an antichain, as [timely.progress.Antichain] does. *)
Definition insert (elements : list T) (t : T) : list T :=
  if existsb (fun e => leb e t) elements then elements else filter (fun e => negb (leb t e)) elements ++ [t].

Definition minimal (ts : list T) : list T := fold_left insert ts [].

(** Whether a frontier allows a time: whether an element is at or before it. *)
Definition allows (frontier : list T) (u : T) : Prop := exists t, In t frontier /\ leb t u = true.

Lemma insert_allows elements t u : allows (insert elements t) u <-> allows elements u \/ leb t u = true.
Proof.
  unfold insert, allows. destruct (existsb (fun e => leb e t) elements) eqn:Hex.
  - split; [now left |]. intros [H | Ht]; [assumption |]. apply existsb_exists in Hex. destruct Hex as (e & He & Hle).
    exists e. split; [assumption | eapply leb_trans; eassumption].
  - split.
    + intros (e & He & Hle). apply in_app_iff in He. destruct He as [He | [<- | []]]; [| now right].
      apply filter_In in He. left. exists e. tauto.
    + intros [(e & He & Hle) | Ht].
      * destruct (leb t e) eqn:Hte.
        -- exists t. split; [apply in_app_iff; right; now left | eapply leb_trans; eassumption].
        -- exists e. split; [| assumption]. apply in_app_iff. left. apply filter_In. split; [assumption | now rewrite Hte].
      * exists t. split; [apply in_app_iff; right; now left | assumption].
Qed.

Theorem minimal_allows ts u : allows (minimal ts) u <-> allows ts u.
Proof.
  unfold minimal. assert (H : forall elements, allows (fold_left insert ts elements) u <-> allows elements u \/ allows ts u).
  { induction ts as [| t ts IH]; intros elements; simpl.
    - split; [now left |]. intros [H | (e & [] & _)]. assumption.
    - rewrite IH, insert_allows. split.
      + intros [[H | H] | (e & He & Hle)]; [now left | right; exists t; simpl; auto | right; exists e; simpl; auto].
      + intros [H | (e & [<- | He] & Hle)]; [now left; left | now left; right | right; exists e; auto]. }
  rewrite H. split; [intros [(e & [] & _) | H'] | right]; assumption.
Qed.

(** A cell: the cells that it depends on, with what time becomes from there, and its own times of positive count. *)
Definition cell := (list (nat * (T -> option T)) * list T)%type.

Definition arrivals (values : list (list T)) (ways : list (nat * (T -> option T))) : list T :=
  flat_map (fun way => flat_map (fun t => match snd way t with Some u => [u] | None => [] end) (nth (fst way) values [])) ways.

Definition value (values : list (list T)) (c : cell) : list T := minimal (snd c ++ arrivals values (fst c)).

Fixpoint pass (cells : list cell) (values : list (list T)) : list (list T) :=
  match cells with
  | [] => values
  | c :: rest => pass rest (values ++ [value values c])
  end.

(** Each cell depends on earlier ones only. *)
Fixpoint numbered (n : nat) (cells : list cell) : Prop :=
  match cells with [] => True | c :: rest => (forall way, In way (fst c) -> (fst way < n)%nat) /\ numbered (S n) rest end.

(** The graph that the cells are. *)
Definition cell_edge (cells : list cell) (a : nat) (f : T -> option T) (b : nat) : Prop :=
  exists c, nth_error cells b = Some c /\ In (a, f) (fst c).

Definition own (cells : list cell) (a : nat * T) : Prop :=
  exists c, nth_error cells (fst a) = Some c /\ In (snd a) (snd c).

Lemma pass_prefix cells values : exists more, pass cells values = values ++ more.
Proof.
  revert values. induction cells as [| c rest IH]; intros values; simpl; [exists []; now rewrite app_nil_r |].
  destruct (IH (values ++ [value values c])) as (more & ->). exists (value values c :: more). now rewrite <- app_assoc.
Qed.

Lemma pass_length cells values : length (pass cells values) = (length values + length cells)%nat.
Proof.
  revert values. induction cells as [| c rest IH]; intros values; simpl; [lia |]. rewrite IH, app_length. simpl. lia.
Qed.

Lemma pass_nth cells values i c :
  nth_error cells i = Some c ->
  exists before, (forall j, (j < length values + i)%nat -> nth j (pass cells values) [] = nth j before []) /\
                 length before = (length values + i)%nat /\
                 nth (length values + i) (pass cells values) [] = value before c.
Proof.
  revert values i. induction cells as [| c0 rest IH]; intros values [| i] H; simpl in *; try discriminate.
  - injection H as ->. exists values. destruct (pass_prefix rest (values ++ [value values c])) as (more & ->).
    rewrite <- app_assoc. split; [| split; [lia |]].
    + intros j Hj. now rewrite app_nth1 by lia.
    + rewrite app_nth2 by lia. now replace (length values + 0 - length values)%nat with 0%nat by lia.
  - destruct (IH (values ++ [value values c0]) i H) as (before & Hnth & Hlen & Hval).
    rewrite app_length in *. simpl in *. exists before. split; [| split].
    + intros j Hj. apply Hnth. lia.
    + lia.
    + now replace (length values + S i)%nat with (length values + 1 + i)%nat by lia.
Qed.

Lemma arrivals_in values ways u :
  In u (arrivals values ways) <-> exists a f t, In (a, f) ways /\ In t (nth a values []) /\ f t = Some u.
Proof.
  unfold arrivals. rewrite in_flat_map. split.
  - intros ([a f] & Hway & Hu). apply in_flat_map in Hu. destruct Hu as (t & Ht & Hu). simpl in *.
    exists a, f, t. destruct (f t) eqn:Hf; [| destruct Hu]. destruct Hu as [-> | []]. auto.
  - intros (a & f & t & Hway & Ht & Hf). exists (a, f). split; [assumption |]. apply in_flat_map. exists t. simpl.
    split; [assumption |]. rewrite Hf. now left.
Qed.

Lemma numbered_nth n cells i c : numbered n cells -> nth_error cells i = Some c -> forall way, In way (fst c) -> (fst way < n + i)%nat.
Proof.
  revert n i. induction cells as [| c0 rest IH]; intros n [| i] Hn H way Hw; simpl in *; try discriminate.
  - injection H as ->. destruct Hn as [Hn _]. specialize (Hn way Hw). lia.
  - destruct Hn as [_ Hn]. specialize (IH (S n) i Hn H way Hw). lia.
Qed.

(** The frontier of a cell is what its own times and its predecessors' frontiers make. *)
Lemma pass_equation cells i c u :
  numbered 0 cells -> nth_error cells i = Some c ->
  (allows (nth i (pass cells []) []) u <->
   allows (snd c) u \/ exists a f t v, In (a, f) (fst c) /\ In t (nth a (pass cells []) []) /\ f t = Some v /\ leb v u = true).
Proof.
  intros Hnum Hc. destruct (pass_nth cells [] i c Hc) as (before & Hnth & _ & Hval). simpl in *.
  rewrite Hval. unfold value. rewrite minimal_allows. unfold allows. split.
  - intros (t & Ht & Hle). apply in_app_iff in Ht. destruct Ht as [Ht | Ht]; [left; exists t; auto |].
    apply arrivals_in in Ht. destruct Ht as (a & f & s & Hway & Hs & Hf).
    pose proof (numbered_nth 0 cells i c Hnum Hc _ Hway) as Hlt. simpl in Hlt.
    right. exists a, f, s, t. rewrite (Hnth a Hlt). auto.
  - intros [(t & Ht & Hle) | (a & f & s & v & Hway & Hs & Hf & Hle)].
    + exists t. split; [apply in_app_iff; now left | assumption].
    + pose proof (numbered_nth 0 cells i c Hnum Hc _ Hway) as Hlt. simpl in Hlt. rewrite (Hnth a Hlt) in Hs.
      exists v. split; [| assumption]. apply in_app_iff. right. apply arrivals_in. exists a, f, s. auto.
Qed.

(** One pass upward settles every frontier: a cell's allows exactly what some cell's own time results in, along the cells. *)
Theorem pass_exact cells b :
  (forall a f c, cell_edge cells a f c -> monotone T (fun x y => leb x y = true) f) ->
  numbered 0 cells -> (fst b < length cells)%nat ->
  (allows (nth (fst b) (pass cells []) []) (snd b) <->
   frontier nat T (fun x y => leb x y = true) (edge_step nat T (cell_edge cells)) (own cells) b).
Proof.
  intros cells_monotone Hnum. destruct b as [i u]. simpl. revert u. induction i as [i IH] using lt_wf_ind. intros u Hi.
  destruct (nth_error cells i) as [c |] eqn:Hc; [| apply nth_error_None in Hc; lia].
  rewrite (pass_equation cells i c u Hnum Hc). split.
  - intros [(t & Ht & Hle) | (a & f & t & v & Hway & Ht & Hf & Hle)].
    + exists (i, t). split; [exists c; auto |]. exists t. split; [constructor | assumption].
    + pose proof (numbered_nth 0 cells i c Hnum Hc _ Hway) as Hlt. simpl in Hlt.
      assert (Hfront : frontier nat T (fun x y => leb x y = true) (edge_step nat T (cell_edge cells)) (own cells) (a, t)).
      { apply (IH a Hlt t); [lia |]. exists t. split; [assumption | apply leb_refl]. }
      destruct Hfront as (o & Ho & w & Hw & Hwt). simpl in *. exists o. split; [assumption |].
      assert (Hedge : cell_edge cells a f i) by (exists c; auto).
      destruct (cells_monotone a f i Hedge w t v Hwt Hf) as (x & Hx & Hxv).
      exists x. split; [| eapply leb_trans; eassumption].
      apply (reaches_trans nat T (edge_step nat T (cell_edge cells)) o (a, w)); [assumption |].
      eapply reaches_step; [econstructor; eassumption | constructor].
  - intros (o & Ho & w & Hw & Hwu). simpl in *.
    assert (Hlast : o = (i, w) \/ exists a f t, reaches nat T (edge_step nat T (cell_edge cells)) o (a, t) /\ In (a, f) (fst c) /\ f t = Some w).
    { clear - Hw Hc. remember (i, w) as b eqn:Hb. revert Hb. induction Hw as [b | a x b Hs Hr IH]; intros ->; [now left |].
      right. destruct (IH eq_refl) as [-> | (p & f & t & Hp & Hf)].
      - destruct a as [p t]. inversion Hs as [? ? f m v (d & Hd & Hin) Hf]; subst. rewrite Hc in Hd. injection Hd as <-.
        exists p, f, t. split; [constructor | auto].
      - exists p, f, t. split; [eapply reaches_step; eassumption | assumption]. }
    destruct Hlast as [-> | (a & f & t & Hr & Hway & Hf)].
    + left. destruct Ho as (d & Hd & Hin). simpl in *. rewrite Hc in Hd. injection Hd as <-. exists w. auto.
    + right. pose proof (numbered_nth 0 cells i c Hnum Hc _ Hway) as Hlt. simpl in Hlt.
      destruct (IH a Hlt t ltac:(lia)) as [_ Hback].
      destruct Hback as (s & Hs & Hst); [exists o; split; [assumption |]; exists t; split; [assumption | apply leb_refl] |].
      assert (Hedge : cell_edge cells a f i) by (exists c; auto).
      destruct (cells_monotone a f i Hedge s t w Hst Hf) as (x & Hx & Hxw).
      exists a, f, s, x. split; [assumption |]. split; [assumption |]. split; [assumption | eapply leb_trans; eassumption].
Qed.

(** ** Marks

    The engine recomputes a cell only if its own times changed or the frontier of one that it depends on did. *)

Variable T_dec : forall a b : T, {a = b} + {a <> b}.

Definition changed (old values : list (list T)) (way : nat * (T -> option T)) : bool :=
  if list_eq_dec T_dec (nth (fst way) old []) (nth (fst way) values []) then false else true.

Fixpoint marked_pass (cells : list (bool * cell)) (old values : list (list T)) : list (list T) :=
  match cells with
  | [] => values
  | (mark, c) :: rest =>
      marked_pass rest old
        (values ++ [if mark || existsb (changed old values) (fst c) then value values c else nth (length values) old []])
  end.

Lemma value_same (one other : list (list T)) (c : cell) :
  (forall way, In way (fst c) -> nth (fst way) one [] = nth (fst way) other []) -> value one c = value other c.
Proof.
  intros H. unfold value. f_equal. f_equal. unfold arrivals.
  destruct c as [ways own_times]. simpl in *. induction ways as [| way ways IH]; simpl; [reflexivity |].
  rewrite (H way) by now left. f_equal. apply IH. intros. apply H. now right.
Qed.

Lemma pass_value cells i c : numbered 0 cells -> nth_error cells i = Some c -> nth i (pass cells []) [] = value (pass cells []) c.
Proof.
  intros Hnum Hc. destruct (pass_nth cells [] i c Hc) as (before & Hnth & _ & Hval). simpl in *. rewrite Hval.
  apply value_same. intros way Hway. symmetry. apply Hnth. exact (numbered_nth 0 cells i c Hnum Hc way Hway).
Qed.

(** Where all frontiers were right, and all cells whose own times or ways changed are marked, the others need not be looked at. *)
Theorem marks_suffice before after marks :
  numbered 0 before -> length before = length after -> length marks = length after ->
  (forall i b a, nth_error before i = Some b -> nth_error after i = Some a -> nth i marks true = false -> a = b) ->
  marked_pass (combine marks after) (pass before []) [] = pass after [].
Proof.
  intros Hnum Hlen Hmarks Hsame.
  enough (H : forall old values, (forall i b, nth_error before i = Some b -> nth (length values + i) old [] = value old b) ->
                                 marked_pass (combine marks after) old values = pass after values).
  { apply H. intros i b Hb. now apply pass_value. }
  clear Hnum. revert before marks Hlen Hmarks Hsame.
  induction after as [| a after IH]; intros before marks Hlen Hmarks Hsame old values Hold.
  - now destruct marks.
  - destruct marks as [| m marks]; [discriminate |]. destruct before as [| b before]; [discriminate |]. simpl.
    assert (Hv : (if m || existsb (changed old values) (fst a) then value values a else nth (length values) old []) = value values a).
    { destruct m; [reflexivity |]. simpl. destruct (existsb (changed old values) (fst a)) eqn:Hex; [reflexivity |].
      assert (a = b) as -> by (apply (Hsame 0%nat); reflexivity).
      specialize (Hold 0%nat b eq_refl). rewrite Nat.add_0_r in Hold. rewrite Hold. apply value_same. intros way Hway.
      destruct (changed old values way) eqn:Hc.
      - assert (existsb (changed old values) (fst b) = true) by (apply existsb_exists; exists way; auto). congruence.
      - unfold changed in Hc. destruct (list_eq_dec T_dec (nth (fst way) old []) (nth (fst way) values [])); [assumption | discriminate]. }
    rewrite Hv. apply IH with (before := before).
    + now injection Hlen.
    + now injection Hmarks.
    + intros i x y Hx Hy Hm. apply (Hsame (S i)); assumption.
    + intros i x Hx. rewrite app_length. simpl. replace (length values + 1 + i)%nat with (length values + S i)%nat by lia. now apply Hold.
Qed.

End Pass.
