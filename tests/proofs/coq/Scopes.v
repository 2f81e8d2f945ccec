(** Scopes within scopes: a nested scope cannot be told from its flat graph.

    A scope is a set of locations of a flat graph; edges into it translate times inward, edges out of it outward. The parent sees
    none of what is inside: it has an edge for each way through the scope, and the capabilities that the scope reports, which are
    the projections of what is counted inside to where the ways out of it lead. The frontiers outside and inside are then those
    of the flat graph. The parent's graph is a graph again, so nestings of any depth follow, scope by scope.

    Two things are not right, and each has a counterexample here: to report what was read in one batch and what is held for it in
    another, and to project sums of counts while some are negative. *)
From Coq Require Import List ZArith Lia Bool Arith.
From Timely Require Import Exchange Network Graph.
Import ListNotations.

Section Scopes.

Variable L T : Type.
Variable le : T -> T -> Prop.
Hypothesis le_refl : forall a, le a a.
Hypothesis le_trans : forall a b c, le a b -> le b c -> le a c.
Hypothesis le_antisym : forall a b, le a b -> le b a -> a = b.
Variable step : L * T -> L * T -> Prop.
Hypothesis step_earlier : forall l t u b, le t u -> step (l, u) b -> exists v, step (l, t) (fst b, v) /\ le v (snd b).
Hypothesis cycles_advance : forall l t u b, step (l, t) b -> reaches L T step b (l, u) -> ~ le u t.

(** The locations of the nested scope. *)
Variable inside : L -> bool.

Notation stamp := (L * T)%type.
Notation reaches := (reaches L T step).
Notation could := (could L T le step).

Definition is_in (a : stamp) := inside (fst a) = true.
Definition is_out (a : stamp) := inside (fst a) = false.

(** A way inside the scope, to where it leaves it: what an inner time makes of itself on the way out, translation and all. *)
Inductive leaves : stamp -> stamp -> Prop :=
| leaves_now a b : is_in a -> step a b -> is_out b -> leaves a b
| leaves_later a b c : is_in a -> step a b -> leaves b c -> leaves a c.

(** A way that stays inside. *)
Inductive stays : stamp -> stamp -> Prop :=
| stays_here a : is_in a -> stays a a
| stays_step a b c : is_in a -> step a b -> stays b c -> stays a c.

(** A step of the parent: an edge outside, or a way through the scope (its internal summary). *)
Inductive parent_step : stamp -> stamp -> Prop :=
| parent_edge a b : is_out a -> step a b -> is_out b -> parent_step a b
| parent_through a b c : is_out a -> step a b -> leaves b c -> parent_step a c.

(** The parent's graph is a graph of the same kind. *)
Notation parent_reaches := (Graph.reaches L T parent_step).
Definition parent_could := Graph.could L T le parent_step.

Lemma in_or_out a : is_in a \/ is_out a.
Proof. unfold is_in, is_out. destruct (inside (fst a)); auto. Qed.

Lemma leaves_reaches a b : leaves a b -> reaches a b.
Proof. induction 1; [eapply reaches_step; [eassumption | constructor] | eapply reaches_step; eassumption]. Qed.

Lemma leaves_out a b : leaves a b -> is_out b.
Proof. induction 1; assumption. Qed.

Lemma leaves_in a b : leaves a b -> is_in a.
Proof. destruct 1; assumption. Qed.

Lemma stays_reaches a b : stays a b -> reaches a b.
Proof. induction 1; [constructor | eapply reaches_step; eassumption]. Qed.

Lemma parent_step_reaches a b : parent_step a b -> exists c, step a c /\ reaches c b.
Proof.
  destruct 1 as [a b _ Hs _ | a b c _ Hs Hl]; exists b; (split; [assumption |]); [constructor | now apply leaves_reaches].
Qed.

Lemma parent_reaches_reaches a b : parent_reaches a b -> reaches a b.
Proof.
  induction 1 as [| a b c Hs _ IH]; [constructor |]. destruct (parent_step_reaches a b Hs) as (d & Had & Hdb).
  eapply reaches_step; [eassumption |]. eapply reaches_trans; eassumption.
Qed.

(** A path of the flat graph that ends outside: the parent sees it, from where it first leaves the scope. *)
Lemma to_outside a b : reaches a b -> is_out b ->
  (is_out a -> parent_reaches a b) /\ (is_in a -> exists c, leaves a c /\ parent_reaches c b).
Proof.
  induction 1 as [a | a c b Hs _ IH]; intros Hb.
  - split; [intros; constructor |]. intros Ha. unfold is_in, is_out in *. congruence.
  - destruct (IH Hb) as [IHout IHin]. split; intros Ha.
    + destruct (in_or_out c) as [Hc | Hc].
      * destruct (IHin Hc) as (d & Hd & Hdb). eapply reaches_step; [eapply parent_through; eassumption | assumption].
      * eapply reaches_step; [apply parent_edge; eassumption | auto].
    + destruct (in_or_out c) as [Hc | Hc].
      * destruct (IHin Hc) as (d & Hd & Hdb). exists d. split; [eapply leaves_later; eassumption | assumption].
      * exists c. split; [now apply leaves_now | auto].
Qed.

(** A path that ends inside: it stays there, or enters for a last time. *)
Lemma to_inside a b : reaches a b -> is_in b ->
  (is_in a /\ stays a b) \/
  (exists c d, is_out c /\ step c d /\ stays d b /\
     ((is_out a /\ parent_reaches a c) \/ (is_in a /\ exists x, leaves a x /\ parent_reaches x c))).
Proof.
  induction 1 as [a | a x b Hs Hr IH]; intros Hb.
  - left. split; [assumption | now constructor].
  - destruct (IH Hb) as [[Hx Hst] | (c & d & Hc & Hcd & Hdb & Hway)].
    + destruct (in_or_out a) as [Ha | Ha].
      * left. split; [assumption | eapply stays_step; eassumption].
      * right. exists a, x. repeat (split; [assumption |]). left. split; [assumption | constructor].
    + right. exists c, d. repeat (split; [assumption |]).
      destruct Hway as [[Hx Hp] | [Hx (y & Hy & Hp)]]; destruct (in_or_out a) as [Ha | Ha].
      * right. split; [assumption |]. exists x. split; [now apply leaves_now | assumption].
      * left. split; [assumption |]. eapply reaches_step; [apply parent_edge; eassumption | assumption].
      * right. split; [assumption |]. exists y. split; [eapply leaves_later; eassumption | assumption].
      * left. split; [assumption |]. eapply reaches_step; [eapply parent_through; eassumption | assumption].
Qed.

(** ** What the parent counts *)

(** The pointstamps that count, of the flat graph. *)
Variable positive : stamp -> Prop.

(** What the parent counts: what is outside, and the projections of what is inside. Nothing of the frontiers that the parent
    itself has shown to the scope: a loop through the parent would keep itself alive. *)
Definition reported (b : stamp) : Prop :=
  (positive b /\ is_out b) \/ exists a, positive a /\ is_in a /\ leaves a b.

(** Projection to outputs: outside, the parent's frontiers are those of the flat graph. *)
Theorem projection_outward b :
  is_out b -> ((exists a, positive a /\ could a b) <-> (exists a, reported a /\ parent_could a b)).
Proof.
  intros Hb. split.
  - intros (a & Ha & u & Hu & Hle). destruct (to_outside a _ Hu Hb) as [Hout Hin].
    destruct (in_or_out a) as [Hia | Hoa].
    + destruct (Hin Hia) as (c & Hc & Hp). exists c. split; [right; exists a; auto | exists u; auto].
    + exists a. split; [left; auto | exists u; auto].
  - intros (c & Hc & u & Hu & Hle). apply parent_reaches_reaches in Hu.
    destruct Hc as [[Hc _] | (a & Ha & _ & Hl)].
    + exists c. split; [assumption | exists u; auto].
    + exists a. split; [assumption |]. exists u. split; [| assumption].
      eapply reaches_trans; [apply leaves_reaches; eassumption | assumption].
Qed.

(** Projection to inputs: inside, the scope derives its frontiers from what it counts itself and from what enters, which is
    what the parent says may still come to the places that lead into it. *)
Theorem projection_inward b :
  is_in b ->
  ((exists a, positive a /\ could a b) <->
   (exists a u, positive a /\ stays a (fst b, u) /\ le u (snd b)) \/
   (exists a c t d u, reported a /\ is_out (c, t) /\ parent_could a (c, t) /\ step (c, t) d /\ stays d (fst b, u) /\ le u (snd b))).
Proof.
  intros Hb. split.
  - intros (a & Ha & u & Hu & Hle). destruct (to_inside a _ Hu Hb) as [[Hia Hst] | ([c t] & d & Hc & Hcd & Hd & Hway)].
    + left. exists a, u. auto.
    + right. destruct Hway as [[Hoa Hp] | [Hia (x & Hx & Hp)]].
      * exists a, c, t, d, u. split; [left; auto |]. split; [assumption |]. split; [exists t; split; [assumption | apply le_refl] |]. auto.
      * exists x, c, t, d, u. split; [right; exists a; auto |]. split; [assumption |].
        split; [exists t; split; [assumption | apply le_refl] |]. auto.
  - intros [(a & u & Ha & Hst & Hle) | (a & c & t & d & u & Ha & _ & (v & Hv & Hvt) & Hcd & Hst & Hle)].
    + exists a. split; [assumption |]. exists u. split; [now apply stays_reaches | assumption].
    + (* what could come to the entrance earlier enters earlier *)
      simpl in Hvt. assert (Hflat : exists o, positive o /\ reaches o (c, v)).
      { apply parent_reaches_reaches in Hv. destruct Ha as [[Ha _] | (o & Ho & _ & Hl)].
        - exists a. auto.
        - exists o. split; [assumption |]. eapply reaches_trans; [apply leaves_reaches; eassumption | assumption]. }
      destruct Hflat as (o & Ho & Hov). exists o. split; [assumption |].
      assert (Hct : reaches (c, t) (fst b, u)) by (eapply reaches_step; [eassumption | now apply stays_reaches]).
      destruct (reaches_earlier L T le step step_earlier (c, t) _ Hct v Hvt) as (w & Hw & Hwu). simpl in *.
      exists w. split; [eapply reaches_trans; eassumption | eapply le_trans; eassumption].
Qed.

(** ** The parent's graph is a graph of the same kind, so the same holds of its own parent *)

Lemma leaves_earlier a b : leaves a b -> forall t, le t (snd a) -> exists u, leaves (fst a, t) (fst b, u) /\ le u (snd b).
Proof.
  induction 1 as [[l x] b Ha Hs Hb | [l x] b c Ha Hs _ IH]; intros t Ht; simpl in *.
  - destruct (step_earlier l t x b Ht Hs) as (v & Hv & Hle). exists v. split; [now apply leaves_now | assumption].
  - destruct (step_earlier l t x b Ht Hs) as (v & Hv & Hle). destruct (IH v Hle) as (u & Hu & Huc).
    exists u. split; [eapply leaves_later; [exact Ha | exact Hv | exact Hu] | assumption].
Qed.

(** Monotone: what reaches later gets through, and no later, from an earlier time. *)
Theorem parent_monotone a b : parent_step a b -> forall t, le t (snd a) -> exists u, parent_step (fst a, t) (fst b, u) /\ le u (snd b).
Proof.
  destruct 1 as [[l x] b Ha Hs Hb | [l x] b c Ha Hs Hl]; intros t Ht; simpl in *.
  - destruct (step_earlier l t x b Ht Hs) as (v & Hv & Hle). exists v. split; [now apply parent_edge | assumption].
  - destruct (step_earlier l t x b Ht Hs) as (v & Hv & Hle).
    destruct (leaves_earlier b c Hl v Hle) as (u & Hu & Huc). exists u.
    split; [eapply parent_through; [exact Ha | exact Hv | exact Hu] | assumption].
Qed.

Theorem parent_earlier l t u b : le t u -> parent_step (l, u) b -> exists v, parent_step (l, t) (fst b, v) /\ le v (snd b).
Proof. intros Hle H. exact (parent_monotone _ _ H t Hle). Qed.

(** Every cycle of the parent's graph advances as those of the flat graph do: what holds of any cycle of one holds of any of the other. *)
Theorem parent_cycles_advance (advances : T -> T -> Prop) :
  (forall l t u b, step (l, t) b -> reaches b (l, u) -> advances t u) ->
  forall l t u b, parent_step (l, t) b -> parent_reaches b (l, u) -> advances t u.
Proof.
  intros Hflat l t u b Hs Hr. destruct (parent_step_reaches _ _ Hs) as (c & Hc & Hcb).
  apply (Hflat l t u c Hc). eapply reaches_trans; [eassumption | now apply parent_reaches_reaches].
Qed.

End Scopes.

(** ** A scope in a scope: the projection of a projection is that of the flat graph, and so on to any depth *)

Theorem nested_twice (L T : Type) (le : T -> T -> Prop) (step : L * T -> L * T -> Prop) (inner outer : L -> bool) positive b :
  is_out L T inner b -> is_out L T outer b ->
  ((exists a, positive a /\ Graph.could L T le step a b) <->
   (exists a, reported L T (parent_step L T step inner) outer (reported L T step inner positive) a /\
              parent_could L T le (parent_step L T step inner) outer a b)).
Proof.
  intros Hinner Houter. rewrite (projection_outward L T le step inner positive b Hinner).
  apply (projection_outward L T le (parent_step L T step inner) outer (reported L T step inner positive) b Houter).
Qed.

(** ** Safety for what the parent shows *)

Section Safety.
Variable L T : Type.
Variable le : T -> T -> Prop.
Hypothesis le_refl : forall a, le a a.
Hypothesis le_trans : forall a b c, le a b -> le b c -> le a c.
Hypothesis le_antisym : forall a b, le a b -> le b a -> a = b.
Variable step : L * T -> L * T -> Prop.
Hypothesis step_earlier : forall l t u b, le t u -> step (l, u) b -> exists v, step (l, t) (fst b, v) /\ le v (snd b).
Hypothesis cycles_advance : forall l t u b, step (l, t) b -> reaches L T step b (l, u) -> ~ le u t.
Variable inside : L -> bool.
Variable eq_dec : forall a b : L * T, {a = b} + {a <> b}.
Variable owned : L * T -> bool.
Variable workers : nat.
Variable start : nat -> list (L * T).
Hypothesis start_owned : forall p s, In s (start p) -> owned s = true.
Variable sends : nat -> nat -> bool.
Variable forwards : nat -> nat -> nat -> bool.
Variable before : nat -> nat -> nat.
Variable distance : nat -> nat -> nat.
Hypothesis sends_via : forall p b, sends p b = via before p b p.
Hypothesis forwards_via : forall p w b c, via before w b p = true -> forwards w b c = via before b c p.
Hypothesis before_nearer : forall p b, p <> b -> (distance p (before p b) < distance p b)%nat.

(** The book's statement for a hierarchy: if nothing that the parent of a scope counts on a worker, projections included,
    could result in [(l, t)] in the parent's graph, then no message comes there any more. *)
Theorem hierarchical_safety acts st acts' st' b l t :
  log_steps (L * T) sends forwards acts (log_begin (L * T)) = Some st ->
  log_steps (L * T) sends forwards acts' st = Some st' ->
  legal (L * T) eq_dec (could L T le step) owned workers start (history_of (L * T) (list (event (L * T))) st') ->
  inside l = false ->
  (forall a, reported L T step inside (fun s => (0 < counts (L * T) eq_dec workers start st b s)%Z) a ->
             ~ parent_could L T le step inside a (l, t)) ->
  truth (L * T) eq_dec workers start (history_of (L * T) (list (event (L * T))) st') (l, t) = 0%Z /\
  exists more, history_of (L * T) (list (event (L * T))) st' = more ++ history_of (L * T) (list (event (L * T))) st /\
               forall e, In e more -> ~ In (l, t) (gained (L * T) e) /\ ~ In (l, t) (lost (L * T) e).
Proof.
  intros H H' Hlegal Hout Hnone.
  apply (flat_safety L T le le_refl le_trans le_antisym step step_earlier cycles_advance eq_dec owned workers start start_owned
           sends forwards before distance sends_via forwards_via before_nearer acts st acts' st' b l t H H' Hlegal).
  intros a Ha Hcould.
  destruct (projection_outward L T le step inside
              (fun s => (0 < counts (L * T) eq_dec workers start st b s)%Z) (l, t) Hout) as [Hto _].
  destruct Hto as (c & Hc & Hp); [exists a; auto |]. exact (Hnone c Hc Hp).
Qed.
End Safety.

(** ** Why the triple is atomic

    Location 0 is a source, 1 the input of a nested scope, 2 what is inside it, 3 an input beyond. The source sends a message, the
    scope reads it and holds a capability for it, and later sends a message on. Whole, this is a legal run, and no cut that has
    not seen the end of it passes 3. Decoupled, a worker that has received what was read, and not what is held for it, counts
    nothing at all: it passes 3, and then a message comes there. *)

Definition chain_owned (s : nat) := Nat.even s.
Definition chain_start (p : nat) : list nat := if (p =? 0)%nat then [0%nat] else [].
Definition sends_in := Event nat 0 [0%nat] [1%nat].
Definition reads_and_holds := Event nat 0 [1%nat] [2%nat].
Definition reads := Event nat 0 [1%nat] [].
Definition holds := Event nat 0 [] [2%nat].
Definition sends_on := Event nat 0 [2%nat] [3%nat].

Notation chain_legal := (legal nat Nat.eq_dec Nat.le chain_owned 1 chain_start).
Notation chain_passed := (passed nat Nat.eq_dec Nat.le 1 chain_start).

(** One statement is two, which say the same together. *)
Definition splits (e one other : event nat) : Prop :=
  who nat one = who nat e /\ who nat other = who nat e /\
  lost nat one ++ lost nat other = lost nat e /\ gained nat one ++ gained nat other = gained nat e.

Ltac counting s := do 4 (destruct s as [| s]; [vm_compute; try discriminate; auto |]); vm_compute; try discriminate; auto.

Theorem whole_is_legal : chain_legal [sends_on; reads_and_holds; sends_in].
Proof.
  repeat match goal with |- legal _ _ _ _ _ _ _ => constructor end.
  all: try (simpl; lia).
  all: intros s H.
  all: try (counting s; fail).
  all: destruct H as [<- | []].
  - exists 0%nat. left. vm_compute. repeat split; lia.
  - exists 1%nat. right. split; [now left |]. split; [lia | lia].
  - exists 2%nat. left. vm_compute. repeat split; lia.
Qed.

Theorem decoupling_is_unsafe :
  splits reads_and_holds reads holds /\
  exists n, chain_passed n [holds; reads; sends_in] 3%nat /\
            (n 0%nat <= length [holds; reads; sends_in])%nat /\
            In 3%nat (gained nat sends_on) /\ ~ chain_legal [sends_on; holds; reads; sends_in].
Proof.
  split; [repeat split |]. exists (fun _ => 2%nat). split; [| split; [simpl; lia | split; [now left |]]].
  - intros s _. counting s.
  - intros H.
    assert (Hp : chain_passed (fun _ => 2%nat) [sends_on; holds; reads; sends_in] 3%nat) by (intros s _; counting s).
    destruct (safety nat Nat.eq_dec Nat.le Nat.le_refl Nat.le_trans Nat.le_antisymm chain_owned 1 chain_start) with
      (n := fun _ : nat => 2%nat) (r := [sends_on; holds; reads; sends_in]) (t := 3%nat) (e := sends_on) (s := 3%nat)
      as [Hg _]; try assumption.
    + intros [| p] s; simpl; [intros [<- | []]; reflexivity | intros []].
    + vm_compute. now left.
    + apply Nat.le_refl.
    + apply Hg. now left.
Qed.

(** ** Why frontiers are projected, and not sums of counts

    Two inner times that leave the scope at the same outer time; one count is negative, as it may be in a view. The sum of their
    projections is zero, and so the parent would conclude that nothing comes. The positive one still results in that time. *)
Theorem projected_sums_hide :
  exists (counted : nat -> Z) (outward : nat -> nat),
    (exists inner, 0 < counted inner /\ outward inner = 0%nat)%Z /\
    (forall outer, fold_right (fun inner sum => (if (outward inner =? outer)%nat then counted inner else 0) + sum) 0 [0%nat; 1%nat] <= 0)%Z /\
    (forall inner, (1 < inner)%nat -> counted inner = 0%Z).
Proof.
  exists (fun inner => match inner with 0%nat => 1 | 1%nat => -1 | _ => 0 end)%Z, (fun _ => 0%nat). split; [| split].
  - exists 0%nat. split; [lia | reflexivity].
  - intros [| outer]; simpl; lia.
  - intros [| [| inner]] H; [lia | lia | reflexivity].
Qed.

(** Where no count is negative, sums do: a projected sum is positive exactly where something positive leads. *)
Theorem projected_sums_suffice (X : Type) (counted : X -> Z) (leads : X -> bool) (all : list X) :
  (forall x, In x all -> 0 <= counted x)%Z ->
  (0 < fold_right (fun x sum => (if leads x then counted x else 0) + sum) 0 all)%Z <->
  exists x, In x all /\ leads x = true /\ (0 < counted x)%Z.
Proof.
  induction all as [| x all IH]; simpl; intros H.
  - split; [lia | intros (x & [] & _)].
  - assert (Hall : forall y, In y all -> (0 <= counted y)%Z) by (intros; apply H; now right).
    assert (Hsum : (0 <= fold_right (fun x sum => (if leads x then counted x else 0) + sum) 0 all)%Z).
    { clear - Hall. induction all as [| y all IH]; simpl; [lia |]. pose proof (Hall y (or_introl eq_refl)).
      assert (0 <= fold_right (fun x sum => (if leads x then counted x else 0) + sum) 0 all)%Z by (apply IH; intros; apply Hall; now right).
      destruct (leads y); lia. }
    pose proof (H x (or_introl eq_refl)) as Hx. split.
    + intros Hpos. destruct (leads x) eqn:Hl.
      * destruct (Z_lt_le_dec 0 (counted x)); [exists x; auto |].
        destruct IH as [IH _]; [assumption |]. destruct IH as (y & Hy & Hr); [lia | exists y; auto].
      * destruct IH as [IH _]; [assumption |]. destruct IH as (y & Hy & Hr); [lia | exists y; auto].
    + intros (y & [<- | Hy] & Hl & Hpos).
      * rewrite Hl. lia.
      * assert (0 < fold_right (fun x sum => (if leads x then counted x else 0) + sum) 0 all)%Z by (apply IH; [assumption | exists y; auto]).
        destruct (leads x); lia.
Qed.
