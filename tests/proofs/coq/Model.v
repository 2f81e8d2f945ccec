(** The model as programs: pairs of numbers as times, a list of edges as a graph, and what the theorems are about, computed.

    This is what is compared with the code, both ways: traces that are computed here are replayed by the Python, and runs that the
    Python has recorded are checked here. An [int] is a pair whose second number is 0; a round of a loop is the second number. *)
From Coq Require Import List ZArith Lia Bool Arith Wellfounded.
From Timely Require Import Exchange Network Groups Graph Scopes Compiler Compaction Reduce.
From Timely Require Collections Whole.
Import ListNotations.
Open Scope nat_scope.

(** ** Times *)

Definition time := (nat * nat)%type.
Definition tle (a b : time) : bool := (fst a <=? fst b) && (snd a <=? snd b).
Definition lub (a b : time) : time := (Nat.max (fst a) (fst b), Nat.max (snd a) (snd b)).
Definition glb (a b : time) : time := (Nat.min (fst a) (fst b), Nat.min (snd a) (snd b)).
Definition Tle (a b : time) : Prop := tle a b = true.

Lemma tle_spec a b : tle a b = true <-> fst a <= fst b /\ snd a <= snd b.
Proof. unfold tle. rewrite andb_true_iff, !Nat.leb_le. tauto. Qed.

Ltac times := repeat match goal with t : time |- _ => destruct t end; unfold Tle, lub, glb in *; rewrite ?tle_spec in *; simpl in *.

Lemma tle_refl a : tle a a = true.
Proof. times. lia. Qed.
Lemma tle_trans a b c : tle a b = true -> tle b c = true -> tle a c = true.
Proof. times. lia. Qed.
Lemma tle_antisym a b : tle a b = true -> tle b a = true -> a = b.
Proof. times. intros. f_equal; lia. Qed.
Lemma lub_left a b : tle a (lub a b) = true.
Proof. times. lia. Qed.
Lemma lub_right a b : tle b (lub a b) = true.
Proof. times. lia. Qed.
Lemma lub_least a b c : tle a c = true -> tle b c = true -> tle (lub a b) c = true.
Proof. times. lia. Qed.
Lemma glb_left a b : tle (glb a b) a = true.
Proof. times. lia. Qed.
Lemma glb_right a b : tle (glb a b) b = true.
Proof. times. lia. Qed.
Lemma glb_greatest a b c : tle c a = true -> tle c b = true -> tle c (glb a b) = true.
Proof. times. lia. Qed.

Definition time_dec (a b : time) : {a = b} + {a <> b}.
Proof. decide equality; apply Nat.eq_dec. Defined.

(** *** Compaction, computed *)

Definition advanced (t : time) (frontier : list time) : time := Compaction.advance time lub glb t frontier.

Theorem pairs_compaction D eqb (trace : list (Compaction.change time D)) frontier t d :
  Compaction.beyond time tle frontier t ->
  Compaction.accumulate time tle D eqb (Compaction.compact time lub glb D frontier trace) t d
  = Compaction.accumulate time tle D eqb trace t d.
Proof.
  apply Compaction.compaction; eauto using tle_refl, tle_trans, lub_left, lub_right, lub_least, glb_left, glb_right, glb_greatest.
Qed.

(** *** Reduce, computed: a function that sees which values are there, and how often *)

Section Reduction.
Variable values : nat.

(** The largest value of positive count, once. *)
Definition largest (counts : nat -> Z) (w : nat) : Z :=
  match find (fun v => (0 <? counts v)%Z) (rev (seq 0 values)) with Some v => if (v =? w)%nat then 1%Z else 0%Z | None => 0%Z end.

(** How many values there are. *)
Definition number_of (counts : nat -> Z) (w : nat) : Z :=
  let n := length (filter (fun v => (0 <? counts v)%Z) (seq 0 values)) in
  if ((w =? n) && (0 <? n))%nat then 1%Z else 0%Z.

Lemma find_ext {X} (f g : X -> bool) l : (forall x, f x = g x) -> find f l = find g l.
Proof. intros H. induction l as [| x l IH]; simpl; [reflexivity |]. now rewrite H, IH. Qed.

Lemma largest_counts a b : (forall v, a v = b v) -> forall w, largest a w = largest b w.
Proof. intros H w. unfold largest. rewrite (find_ext _ (fun v => (0 <? b v)%Z)); [reflexivity | intros; now rewrite H]. Qed.

Lemma number_of_counts a b : (forall v, a v = b v) -> forall w, number_of a w = number_of b w.
Proof. intros H w. unfold number_of. rewrite (filter_ext _ (fun v => (0 <? b v)%Z)); [reflexivity | intros; now rewrite H]. Qed.

Definition single (v : nat) (diff : Z) : nat -> Z := fun w => if (w =? v)%nat then diff else 0%Z.

(** A batch is a list of (time, value, difference). *)
Definition batch_of (l : list (time * nat * Z)) : changes time nat := map (fun c => match c with (t, v, d) => (t, single v d) end) l.

(** A table of the counts of small values: what has been computed is not computed again. *)
Definition table (g : nat -> Z) : nat -> Z :=
  let known := map g (seq 0 (S values)) in fun w => if w <? S values then nth w known 0%Z else g w.

Lemma table_same g w : table g w = g w.
Proof.
  unfold table. destruct (Nat.ltb_spec w (S values)) as [H | H]; [| reflexivity].
  rewrite (nth_indep _ 0%Z (g 0)) by now rewrite map_length, seq_length. rewrite map_nth. now rewrite seq_nth.
Qed.

Definition reduction (f : (nat -> Z) -> nat -> Z) (batches : list (list (time * nat * Z))) : changes time nat :=
  snd (Reduce.run time tle lub nat nat f table time_dec (map batch_of batches)).

(** What changed at each time, added up, for values up to [values]. *)
Definition consolidated (output : changes time nat) : list (time * nat * Z) :=
  flat_map (fun t => flat_map (fun w =>
      let d := fold_right (fun c s => ((if time_dec (fst c) t then snd c w else 0) + s)%Z) 0%Z output in
      if (d =? 0)%Z then [] else [(t, w, d)]) (seq 0 (S values))) (nodup time_dec (map fst output)).

Theorem reduction_right f batches :
  (forall a b, (forall v, a v = b v) -> forall w, f a w = f b w) -> (forall w, f (fun _ => 0%Z) w = 0%Z) ->
  forall t w, Reduce.accumulate time tle (reduction f batches) t w
            = f (Reduce.accumulate time tle (concat (map batch_of batches)) t) w.
Proof.
  intros Hf Hzero t. unfold reduction.
  destruct (reduce_run time tle lub tle_refl tle_trans tle_antisym lub_left lub_right lub_least nat nat f Hf table table_same time_dec
              (map batch_of batches) Hzero) as [_ H]. exact (H t).
Qed.
End Reduction.

(** ** Graphs *)

Inductive summary :=
| Advance (outer inner : nat) (limit : option nat)   (* the last outer time that still passes, if there is one *)
| Leave.                                             (* out of a loop: the round is forgotten *)

Definition results (s : summary) (t : time) : option time :=
  match s with
  | Advance a b limit =>
      match limit with
      | Some last => if fst t + a <=? last then Some (fst t + a, snd t + b) else None
      | None => Some (fst t + a, snd t + b)
      end
  | Leave => Some (fst t, 0)
  end.

Definition graph := list (nat * summary * nat).
Definition edge (g : graph) (l : nat) (f : time -> option time) (m : nat) : Prop := exists s, In (l, s, m) g /\ f = results s.

Definition steps_of (g : graph) := edge_step nat time (edge g).

Lemma results_monotone s : monotone time Tle (results s).
Proof.
  intros a b y Hab. destruct s as [p q limit |]; simpl.
  - destruct limit as [last |].
    + destruct (Nat.leb_spec (fst b + p) last); [| discriminate]. intros [= <-].
      destruct (Nat.leb_spec (fst a + p) last); times; [eexists; split; [reflexivity |]; times; lia | lia].
    + intros [= <-]. eexists. split; [reflexivity |]. times. lia.
  - intros [= <-]. eexists. split; [reflexivity |]. times. lia.
Qed.

Lemma edge_monotone g l f m : edge g l f m -> monotone time Tle f.
Proof. intros (s & _ & ->). apply results_monotone. Qed.

Lemma steps_earlier g l t u b : Tle t u -> steps_of g (l, u) b -> exists v, steps_of g (l, t) (fst b, v) /\ Tle v (snd b).
Proof. apply edges_earlier. apply edge_monotone. Qed.

(** A certificate that cycles advance: ranks of locations, first between scopes, then within one. *)
Definition certified (rank : nat -> nat * nat) (e : nat * summary * nat) : bool :=
  match e with
  | (l, Advance a b _, m) =>
      (0 <? a) || (fst (rank l) <? fst (rank m)) ||
      ((fst (rank l) =? fst (rank m)) && ((0 <? b) || (snd (rank l) <? snd (rank m))))
  | (l, Leave, m) => fst (rank l) <? fst (rank m)
  end.

Definition well_formed (g : graph) (rank : nat -> nat * nat) : bool := forallb (certified rank) g.

Lemma certified_path g rank a b :
  well_formed g rank = true -> Graph.reaches nat time (steps_of g) a b ->
  let (l, t) := a in let (m, u) := b in
  fst t < fst u \/ (fst t = fst u /\ fst (rank l) < fst (rank m)) \/
  (fst t = fst u /\ fst (rank l) = fst (rank m) /\ (snd t < snd u \/ (snd t = snd u /\ snd (rank l) < snd (rank m)) \/ (l = m /\ t = u))).
Proof.
  intros Hwf. induction 1 as [[l t] | a c b Hs _ IH].
  - right. right. tauto.
  - destruct b as [m u]. destruct Hs as [l t f k v (s & Hin & ->) Hf].
    unfold well_formed in Hwf. rewrite forallb_forall in Hwf. specialize (Hwf _ Hin). simpl in Hwf.
    destruct s as [p q limit |]; simpl in Hf, Hwf.
    + assert (Hv : v = (fst t + p, snd t + q)).
      { destruct limit as [last |]; [destruct (fst t + p <=? last); [| discriminate] |]; now injection Hf. }
      subst v. simpl in IH. rewrite !orb_true_iff, andb_true_iff, orb_true_iff, !Nat.ltb_lt, Nat.eqb_eq in Hwf.
      destruct IH as [H | [[H1 H2] | [H1 [H2 [H3 | [[H3 H4] | [H3 H4]]]]]]]; [lia | lia | lia | lia |].
      subst k u. simpl. lia.
    + injection Hf as <-. simpl in IH. rewrite Nat.ltb_lt in Hwf.
      destruct IH as [H | [[H1 H2] | [H1 [H2 _]]]]; lia.
Qed.

Theorem well_formed_cycles g rank :
  well_formed g rank = true ->
  forall l t u b, steps_of g (l, t) b -> Graph.reaches nat time (steps_of g) b (l, u) -> ~ Tle u t.
Proof.
  intros Hwf l t u b Hs Hr Hle. pose proof (certified_path g rank b (l, u) Hwf Hr) as Hp.
  destruct b as [k v]. inversion Hs as [? ? f ? ? (s & Hin & ->) Hf]; subst.
  unfold well_formed in Hwf. rewrite forallb_forall in Hwf. specialize (Hwf _ Hin). simpl in Hwf.
  unfold Tle in Hle. rewrite tle_spec in Hle.
  destruct s as [p q limit |]; simpl in Hf, Hwf.
  - assert (Hv : v = (fst t + p, snd t + q)).
    { destruct limit as [last |]; [destruct (fst t + p <=? last); [| discriminate] |]; now injection Hf. }
    subst v. simpl in Hp. rewrite !orb_true_iff, andb_true_iff, orb_true_iff, !Nat.ltb_lt, Nat.eqb_eq in Hwf.
    destruct Hp as [H | [[H1 H2] | [H1 [H2 [H3 | [[H3 H4] | [H3 H4]]]]]]]; try lia.
    subst k u. simpl in *. lia.
  - injection Hf as <-. simpl in Hp. rewrite Nat.ltb_lt in Hwf. destruct Hp as [H | [[H1 H2] | [H1 [H2 _]]]]; lia.
Qed.

(** *** The graph of a dataflow of collections: what [Whole] asks of it is what the certificate says *)

Definition lexicographic (l : nat) (t : time) (rank : nat -> nat * nat) : nat * nat * nat * nat := (fst t, fst (rank l), snd t, snd (rank l)).
Definition earlier (a b : nat * nat * nat * nat) : Prop :=
  match a, b with (p, q, r, s), (p', q', r', s') =>
    p < p' \/ (p = p' /\ (q < q' \/ (q = q' /\ (r < r' \/ (r = r' /\ s < s'))))) end.

Lemma earlier_well_founded : well_founded earlier.
Proof.
  intros [[[p q] r] s]. revert q r s. induction p as [p IHp] using lt_wf_ind. intros q.
  induction q as [q IHq] using lt_wf_ind. intros r. induction r as [r IHr] using lt_wf_ind. intros s.
  induction s as [s IHs] using lt_wf_ind. constructor. intros [[[p' q'] r'] s'] H. simpl in H.
  destruct H as [H | [-> [H | [-> [H | [-> H]]]]]]; auto.
Qed.

Lemma results_earlier g rank l s m t y u :
  well_formed g rank = true -> In (l, s, m) g -> results s t = Some y -> tle y u = true ->
  earlier (lexicographic l t rank) (lexicographic m u rank).
Proof.
  intros Hwf Hin Hy Hle. unfold well_formed in Hwf. rewrite forallb_forall in Hwf. specialize (Hwf _ Hin). rewrite tle_spec in Hle.
  unfold earlier, lexicographic. destruct s as [p q limit |]; simpl in Hy, Hwf.
  - assert (Hv : y = (fst t + p, snd t + q)).
    { destruct limit as [last |]; [destruct (fst t + p <=? last); [| discriminate] |]; now injection Hy. }
    subst y. simpl in Hle. rewrite !orb_true_iff, andb_true_iff, orb_true_iff, !Nat.ltb_lt, Nat.eqb_eq in Hwf. lia.
  - injection Hy as <-. simpl in Hle. rewrite Nat.ltb_lt in Hwf. lia.
Qed.

(** A time that arrives in time: so do the bounds of two. *)
Theorem results_directed s a b u :
  Collections.below time tle (results s) a u -> Collections.below time tle (results s) b u ->
  Collections.below time tle (results s) (lub a b) u.
Proof.
  unfold Collections.below, Collections.below_b. destruct s as [p q limit |]; simpl; [| times; lia].
  destruct limit as [last |].
  - destruct (Nat.leb_spec (fst a + p) last), (Nat.leb_spec (fst b + p) last), (Nat.leb_spec (Nat.max (fst a) (fst b) + p) last);
      times; intros; try discriminate; try lia.
  - times. lia.
Qed.

Section Dataflow.
Variable D : Type.
Variable node_of : nat -> Whole.node time D nat.
Variable g : graph.
Variable rank : nat -> nat * nat.
Hypothesis fits : forall l f m, Whole.edge time D nat node_of l f m -> exists s, In (l, s, m) g /\ forall t, f t = results s t.

Theorem loops_advance : well_formed g rank = true -> well_founded (Whole.feeds time tle D nat node_of).
Proof.
  intros Hwf. apply wf_incl with (R2 := fun a b => earlier (lexicographic (fst a) (snd a) rank) (lexicographic (fst b) (snd b) rank)).
  - intros a b (f & y & He & Hy & Hle). destruct (fits _ _ _ He) as (s & Hin & Hs). rewrite Hs in Hy. now apply results_earlier with g s y.
  - apply (wf_inverse_image _ _ earlier (fun a => lexicographic (fst a) (snd a) rank)). apply earlier_well_founded.
Qed.

Theorem cycles_advance :
  well_formed g rank = true ->
  forall l t u b, Whole.step time D nat node_of (l, t) b -> Graph.reaches nat time (Whole.step time D nat node_of) b (l, u) -> ~ Tle u t.
Proof.
  intros Hwf. assert (Hstep : forall a b, Whole.step time D nat node_of a b -> steps_of g a b).
  { intros a b [l t f m u He Hf]. destruct (fits _ _ _ He) as (s & Hin & Hs). rewrite Hs in Hf.
    econstructor; [exists s; split; [exact Hin | reflexivity] | exact Hf]. }
  intros l t u b Hs Hr. apply (well_formed_cycles g rank Hwf l t u b); [now apply Hstep |].
  clear Hs. induction Hr; [constructor | econstructor; [now apply Hstep; eassumption | assumption]].
Qed.
End Dataflow.

(** Within one scope, cycles come back strictly later, as the compiler asks. *)
Definition one_scope (g : graph) : bool := forallb (fun e => match e with (_, Leave, _) => false | _ => true end) g.

Theorem one_scope_cycles g rank :
  well_formed g rank = true -> one_scope g = true ->
  forall l t u b, steps_of g (l, t) b -> Graph.reaches nat time (steps_of g) b (l, u) -> Tle t u /\ t <> u.
Proof.
  intros Hwf Hone l t u b Hs Hr. split; [| intros ->; exact (well_formed_cycles g rank Hwf l u u b Hs Hr (tle_refl u))].
  assert (Hup : forall a c, steps_of g a c -> Tle (snd a) (snd c)).
  { intros a c [k v f m w (s & Hin & ->) Hf]. simpl. unfold one_scope in Hone. rewrite forallb_forall in Hone. specialize (Hone _ Hin).
    destruct s as [p q limit |]; [| discriminate]. simpl in Hf. unfold Tle. rewrite tle_spec.
    destruct limit as [last |]; [destruct (fst v + p <=? last); [| discriminate] |]; injection Hf as <-; simpl; lia. }
  assert (Hpath : forall a c, Graph.reaches nat time (steps_of g) a c -> Tle (snd a) (snd c)).
  { induction 1 as [a | a c d Hac _ IH]; [apply tle_refl | eapply tle_trans; [exact (Hup _ _ Hac) | exact IH]]. }
  exact (tle_trans _ _ _ (Hup _ _ Hs) (Hpath _ _ Hr)).
Qed.

(** So what is proved of components is true of every graph that passes the two checks, with its locations in any order. *)
Theorem computed_component g rank in_rest number k positive b :
  well_formed g rank = true -> one_scope g = true ->
  (forall l m, number l = number m -> l = m) -> forallb (fun e => match e with (l, _, m) => (number l <? k) && (number m <? k) end) g = true ->
  is_out nat time in_rest b ->
  (Compiler.frontier nat time Tle (steps_of g) positive b <->
   exists a c d, reported nat time (steps_of g) in_rest positive a /\
                 forth nat time (parent_step nat time (steps_of g) in_rest) number a c /\
                 back nat time (parent_step nat time (steps_of g) in_rest) number c d /\ no_later nat time Tle d b).
Proof.
  intros Hwf Hone Hnumber Hk. apply (component_exact nat time Tle tle_refl tle_trans (steps_of g) (steps_earlier g)) with (k := k).
  - exact (one_scope_cycles g rank Hwf Hone).
  - exact Hnumber.
  - intros x y [l t f m u (s & Hin & _) _]. rewrite forallb_forall in Hk. specialize (Hk _ Hin). simpl in *.
    now rewrite andb_true_iff, !Nat.ltb_lt in Hk.
Qed.

(** *** Frontiers, computed from nothing until they settle *)

Definition times_at (f : list (list time)) (l : nat) : list time := nth l f [].

Definition round (g : graph) (own f : list (list time)) : list (list time) :=
  map (fun m => minimal time tle (times_at own m ++
    flat_map (fun e => match e with (l, s, k) =>
      if k =? m then flat_map (fun t => match results s t with Some u => [u] | None => [] end) (times_at f l) else [] end) g))
    (seq 0 (length own)).

Fixpoint rounds (k : nat) (g : graph) (own : list (list time)) : list (list time) :=
  match k with O => map (fun _ => []) own | S k => round g own (rounds k g own) end.

Definition covers (f h : list time) : bool := forallb (fun t => existsb (fun s => tle s t) f) h.

Definition settled (g : graph) (own f : list (list time)) : bool :=
  forallb (fun l => covers (times_at f l) (times_at (round g own f) l)) (seq 0 (length own)) &&
  forallb (fun e => match e with (l, _, m) => (l <? length own) && (m <? length own) end) g.

Definition counted (own : list (list time)) (a : nat * time) : Prop := In (snd a) (times_at own (fst a)).
Definition frontier_of g own := Compiler.frontier nat time Tle (steps_of g) (counted own).

Lemma round_nth g own f m : m < length own ->
  times_at (round g own f) m = minimal time tle (times_at own m ++
    flat_map (fun e => match e with (l, s, k) =>
      if k =? m then flat_map (fun t => match results s t with Some u => [u] | None => [] end) (times_at f l) else [] end) g).
Proof.
  intros H. unfold times_at at 1, round.
  rewrite (nth_indep _ [] (minimal time tle (times_at own 0 ++
    flat_map (fun e => match e with (l, s, k) =>
      if k =? 0 then flat_map (fun t => match results s t with Some u => [u] | None => [] end) (times_at f l) else [] end) g)))
    by now rewrite map_length, seq_length.
  rewrite (map_nth (fun m => minimal time tle (times_at own m ++
    flat_map (fun e => match e with (l, s, k) =>
      if k =? m then flat_map (fun t => match results s t with Some u => [u] | None => [] end) (times_at f l) else [] end) g))).
  now rewrite seq_nth.
Qed.

Lemma round_allows g own f m u : m < length own ->
  (allows time tle (times_at (round g own f) m) u <->
   allows time tle (times_at own m) u \/
   exists l s t v, In (l, s, m) g /\ In t (times_at f l) /\ results s t = Some v /\ Tle v u).
Proof.
  intros H. rewrite round_nth by assumption. rewrite (minimal_allows time tle tle_trans). unfold allows. split.
  - intros (t & Ht & Hle). apply in_app_iff in Ht. destruct Ht as [Ht | Ht]; [left; exists t; auto |].
    apply in_flat_map in Ht. destruct Ht as ([[l s] k] & Hin & Ht). destruct (Nat.eqb_spec k m) as [-> |]; [| destruct Ht].
    apply in_flat_map in Ht. destruct Ht as (x & Hx & Ht). right. exists l, s, x, t.
    destruct (results s x); [| destruct Ht]. destruct Ht as [<- | []]. auto.
  - intros [(t & Ht & Hle) | (l & s & t & v & Hin & Ht & Hf & Hle)].
    + exists t. split; [apply in_app_iff; now left | assumption].
    + exists v. split; [| assumption]. apply in_app_iff. right. apply in_flat_map. exists (l, s, m). split; [assumption |].
      rewrite Nat.eqb_refl. apply in_flat_map. exists t. split; [assumption |]. rewrite Hf. now left.
Qed.

Lemma rounds_length k g own : length (rounds k g own) = length own.
Proof. destruct k; simpl; unfold round; now rewrite map_length, ?seq_length. Qed.

Lemma rounds_sound k g own m t : In t (times_at (rounds k g own) m) -> frontier_of g own (m, t).
Proof.
  revert m t. induction k as [| k IH]; intros m t Hin.
  - unfold times_at in Hin. simpl in Hin. destruct (nth_in_or_default m (map (fun _ => []) own) ([] : list time)) as [H | H].
    + apply in_map_iff in H. destruct H as (x & Hx & _). rewrite <- Hx in Hin. destruct Hin.
    + rewrite H in Hin. destruct Hin.
  - assert (Hm : m < length own).
    { destruct (le_lt_dec (length own) m) as [H | H]; [| assumption]. unfold times_at in Hin.
      rewrite nth_overflow in Hin; [destruct Hin | now rewrite rounds_length]. }
    assert (Ha : allows time tle (times_at (rounds (S k) g own) m) t) by (exists t; split; [assumption | apply tle_refl]).
    simpl in Ha. apply round_allows in Ha; [| assumption].
    destruct Ha as [(s & Hs & Hle) | (l & s & x & v & He & Hx & Hf & Hle)].
    + exists (m, s). split; [assumption |]. exists s. split; [constructor | assumption].
    + destruct (IH l x Hx) as (a & Ha & w & Hw & Hwx). simpl in *.
      destruct (results_monotone s w x v Hwx Hf) as (y & Hy & Hyv).
      exists a. split; [assumption |]. exists y. split; [| simpl; eapply tle_trans; eassumption].
      apply (reaches_trans nat time (steps_of g) a (l, w)); [assumption |].
      eapply reaches_step; [| constructor]. apply (along nat time (edge g) l w (results s) m y); [exists s; auto | assumption].
Qed.

Lemma settled_complete g own f :
  settled g own f = true -> forall b, frontier_of g own b -> fst b < length own -> allows time tle (times_at f (fst b)) (snd b).
Proof.
  unfold settled. rewrite andb_true_iff. intros [Hc Hin] b (a & Ha & w & Hw & Hle) Hb.
  rewrite forallb_forall in Hc, Hin.
  assert (Hstep : forall m u, m < length own -> allows time tle (times_at (round g own f) m) u -> allows time tle (times_at f m) u).
  { intros m u Hm (t & Ht & Htu). specialize (Hc m ltac:(apply in_seq; lia)). unfold covers in Hc. rewrite forallb_forall in Hc.
    specialize (Hc t Ht). apply existsb_exists in Hc. destruct Hc as (s & Hs & Hst). exists s. split; [assumption | eapply tle_trans; eassumption]. }
  assert (Hreach : forall c d, Graph.reaches nat time (steps_of g) c d -> fst c < length own ->
            allows time tle (times_at f (fst c)) (snd c) -> allows time tle (times_at f (fst d)) (snd d)).
  { induction 1 as [| c x d Hs _ IH]; [trivial |]. intros Hlc (t & Ht & Htc).
    inversion Hs as [l u h m v (s & He & ->) Hf]; subst. simpl in *.
    pose proof (Hin _ He) as Hends. simpl in Hends. rewrite andb_true_iff, !Nat.ltb_lt in Hends.
    apply IH; [tauto |]. apply Hstep; [tauto |]. apply round_allows; [tauto |]. right.
    destruct (results_monotone s t u v Htc Hf) as (y & Hy & Hyv). exists l, s, t, y. auto. }
  assert (Hla : fst a < length own).
  { unfold counted, times_at in Ha. destruct (le_lt_dec (length own) (fst a)); [| assumption].
    rewrite nth_overflow in Ha by assumption. destruct Ha. }
  assert (Hend : allows time tle (times_at f (fst b)) w).
  { apply (Hreach a (fst b, w) Hw Hla). apply Hstep; [assumption |]. apply round_allows; [assumption |]. left.
    exists (snd a). split; [assumption | apply tle_refl]. }
  destruct Hend as (t & Ht & Htw). exists t. split; [assumption | eapply tle_trans; eassumption].
Qed.

(** What is computed is the frontier, of every location. *)
Theorem rounds_exact k g own b :
  settled g own (rounds k g own) = true -> fst b < length own ->
  (allows time tle (times_at (rounds k g own) (fst b)) (snd b) <-> frontier_of g own b).
Proof.
  intros Hs Hb. split; [| intros; now apply (settled_complete g own)].
  intros (t & Ht & Hle). destruct (rounds_sound k g own (fst b) t Ht) as (a & Ha & w & Hw & Hwt).
  exists a. split; [assumption |]. exists w. split; [assumption | eapply tle_trans; eassumption].
Qed.

(** ** Runs: checked against the rules *)

Definition stamp := (nat * time)%type.
Definition stamp_dec (a b : stamp) : {a = b} + {a <> b}.
Proof. decide equality; [apply time_dec | apply Nat.eq_dec]. Defined.

Definition could_in (g : graph) := could nat time Tle (steps_of g).

Section Runs.
Variable g : graph.
Variable own_places : list nat.       (* the locations whose pointstamps belong to a worker: outputs, and inputs of local edges *)
Variable workers : nat.
Variable outputs : list stamp.        (* what each worker holds at first *)

Definition owned (s : stamp) : bool := existsb (Nat.eqb (fst s)) own_places.
Definition start (p : nat) : list stamp := if p <? workers then filter owned outputs else [].

Notation held := (held stamp stamp_dec start).
Notation truth := (truth stamp stamp_dec workers start).
Notation by_worker := (by_worker stamp).

Definition next (s : stamp) : list stamp :=
  flat_map (fun e => match e with (l, f, m) => if l =? fst s then match results f (snd s) with Some u => [(m, u)] | None => [] end else [] end) g.

Definition stamp_le (a b : stamp) : bool := (fst a =? fst b) && tle (snd a) (snd b).

Definition holdings (r : list (event stamp)) (p : nat) : list stamp :=
  filter (fun s => owned s && (0 <? held p r s)%Z) (nodup stamp_dec (start p ++ flat_map (gained stamp) (by_worker p r))).

Definition allowed_b (r : list (event stamp)) (e : event stamp) (s : stamp) : bool :=
  let have := holdings r (who stamp e) in
  let read := flat_map next (lost stamp e) in
  existsb (fun h => stamp_le h s) have ||
  existsb (fun h => stamp_le h s) (flat_map next have) ||
  existsb (fun h => stamp_le h s) read ||
  existsb (fun h => stamp_le h s) (flat_map next read).

Fixpoint legal_b (r : list (event stamp)) : bool :=
  match r with
  | [] => true
  | e :: older =>
      legal_b older && (who stamp e <? workers) &&
      forallb (fun s => if owned s then (0 <=? held (who stamp e) r s)%Z else (0 <=? truth r s)%Z) (lost stamp e) &&
      forallb (allowed_b older e) (gained stamp e)
  end.

Lemma start_is_owned p s : In s (start p) -> owned s = true.
Proof. unfold start. destruct (p <? workers); [| intros []]. intros H. now apply filter_In in H. Qed.

Lemma next_step a b : In b (next a) -> steps_of g a b.
Proof.
  unfold next. intros H. apply in_flat_map in H. destruct H as ([[l f] m] & He & Hb).
  destruct (Nat.eqb_spec l (fst a)) as [-> |]; [| destruct Hb]. destruct (results f (snd a)) as [u |] eqn:Hf; [| destruct Hb].
  destruct Hb as [<- | []]. destruct a as [k t]. simpl in *. apply (along nat time (edge g) k t (results f) m u); [exists f; auto | assumption].
Qed.

Lemma stamp_le_spec a b : stamp_le a b = true -> fst a = fst b /\ Tle (snd a) (snd b).
Proof. unfold stamp_le. rewrite andb_true_iff, Nat.eqb_eq. tauto. Qed.

Lemma holdings_spec r p s : In s (holdings r p) -> owned s = true /\ (0 < held p r s)%Z.
Proof. intros H. apply filter_In in H. destruct H as [_ H]. apply andb_true_iff in H. now rewrite Z.ltb_lt in H. Qed.

Lemma allowed_b_spec r e s : allowed_b r e s = true -> allowed nat time Tle (steps_of g) stamp_dec owned start r e s.
Proof.
  unfold allowed_b. destruct s as [n w]. rewrite !orb_true_iff. intros [[[H | H] | H] | H]; apply existsb_exists in H; destruct H as (h & Hh & Hle);
    apply stamp_le_spec in Hle; destruct h as [m v]; simpl in Hle; destruct Hle as [<- Hle].
  - apply holdings_spec in Hh. now apply (by_capability nat time Tle (steps_of g) stamp_dec owned start r e m v).
  - apply in_flat_map in Hh. destruct Hh as ([l t] & Hl & Hn). apply holdings_spec in Hl. apply next_step in Hn.
    now apply (by_sending nat time Tle (steps_of g) stamp_dec owned start r e l t m v w).
  - apply in_flat_map in Hh. destruct Hh as ([l t] & Hl & Hn). apply next_step in Hn.
    now apply (by_reading nat time Tle (steps_of g) stamp_dec owned start r e l t m v w).
  - apply in_flat_map in Hh. destruct Hh as ([k u] & Hk & Hn). apply in_flat_map in Hk. destruct Hk as ([l t] & Hl & Hk).
    apply next_step in Hn, Hk. now apply (by_answering nat time Tle (steps_of g) stamp_dec owned start r e l t k u m v w).
Qed.

Lemma occ_nonneg_not_lost e s : ~ In s (lost stamp e) -> (0 <= net stamp stamp_dec e s)%Z.
Proof.
  intros H. unfold net. rewrite (occ_not_in stamp stamp_dec (lost stamp e) s H).
  pose proof (occ_nonneg stamp stamp_dec (gained stamp e) s). lia.
Qed.

(** A run that passes the check obeys the rules, so all that is proved of runs is true of it. *)
Theorem accepted_legal rank r :
  well_formed g rank = true -> legal_b r = true -> legal stamp stamp_dec (could_in g) owned workers start r.
Proof.
  intros Hwf. induction r as [| e r IH]; intros H; [constructor |]. simpl in H. rewrite !andb_true_iff in H.
  destruct H as [[[Hr Hwho] Hlost] Hgained]. specialize (IH Hr). rewrite forallb_forall in Hlost, Hgained. apply Nat.ltb_lt in Hwho.
  constructor; [assumption | assumption | | |].
  - intros s Hs. destruct (in_dec stamp_dec s (lost stamp e)) as [Hin | Hout].
    + specialize (Hlost s Hin). rewrite Hs in Hlost. now apply Z.leb_le in Hlost.
    + pose proof (held_nonneg stamp stamp_dec (could_in g) owned workers start r (who stamp e) s IH Hs).
      pose proof (occ_nonneg_not_lost e s Hout). unfold Exchange.held in *.
      rewrite (by_worker_cons stamp), Nat.eqb_refl. simpl. lia.
  - intros s Hs. destruct (in_dec stamp_dec s (lost stamp e)) as [Hin | Hout].
    + specialize (Hlost s Hin). rewrite Hs in Hlost. now apply Z.leb_le in Hlost.
    + pose proof (truth_nonneg stamp stamp_dec (could_in g) owned workers start start_is_owned r s IH).
      pose proof (occ_nonneg_not_lost e s Hout). unfold Exchange.truth in *. simpl. lia.
  - intros s Hs. apply (contract_justifies nat time Tle (steps_of g) (well_formed_cycles g rank Hwf)).
    now apply allowed_b_spec, Hgained.
Qed.

(** *** Views that workers showed during a run *)

Record observation := Observation {
  so_far : nat;                        (* how many statements there were *)
  cut : list nat;                      (* how many of each worker were counted *)
  shown : list (stamp * Z)             (* what the worker counted *)
}.

Definition total_of (l : list (stamp * Z)) (s : stamp) : Z :=
  fold_right (fun c sum => ((if stamp_dec (fst c) s then snd c else 0) + sum)%Z) 0%Z l.

Definition touched (r : list (event stamp)) : list stamp :=
  nodup stamp_dec (flat_map (fun e => lost stamp e ++ gained stamp e) r ++ flat_map start (seq 0 workers)).

(** A worker's view is what the model counts for the statements that it has received. *)
Definition observed_b (r : list (event stamp)) (o : observation) : bool :=
  let past := skipn (length r - so_far o) r in
  let n := fun p => nth p (cut o) 0 in
  forallb (fun s => (Exchange.view stamp stamp_dec workers start n past s =? total_of (shown o) s)%Z)
    (touched past ++ map fst (shown o)).

Definition accepts (rank : nat -> nat * nat) (r : list (event stamp)) (seen : list observation) : bool :=
  well_formed g rank && legal_b r && forallb (observed_b r) seen.

(** *** The network, computed with sums of changes *)

Definition sum_t := list (stamp * Z).
Definition add_sum (a b : sum_t) : sum_t := a ++ b.
Definition one_sum (e : event stamp) : sum_t := map (fun s => (s, 1%Z)) (gained stamp e) ++ map (fun s => (s, (-1)%Z)) (lost stamp e).

Lemma total_of_app a b s : total_of (a ++ b) s = (total_of a s + total_of b s)%Z.
Proof. unfold total_of. induction a as [| [x d] a IH]; simpl; [reflexivity |]. rewrite IH. lia. Qed.

Lemma total_of_map l z s : total_of (map (fun x => (x, z)) l) s = (z * occ stamp stamp_dec l s)%Z.
Proof.
  unfold total_of, occ. induction l as [| x l IH]; [simpl; lia |]. cbn [map fold_right fst snd count_occ]. rewrite IH.
  destruct (stamp_dec x s); [rewrite Nat2Z.inj_succ |]; lia.
Qed.

Lemma total_of_one e s : total_of (one_sum e) s = net stamp stamp_dec e s.
Proof. unfold one_sum, net. rewrite total_of_app, !total_of_map. lia. Qed.

Definition run_sums sends forwards (l : list (action stamp)) : option (state stamp sum_t) :=
  Network.steps stamp sends forwards sum_t [] add_sum one_sum l (begin stamp sum_t []).

(** Safety of what the program computes: a worker whose counts allow nothing at [t] is right, whatever comes next. *)
Theorem computed_safety rank sends forwards before distance l l' st st' b t :
  goes sends forwards before distance ->
  well_formed g rank = true ->
  run_sums sends forwards l = Some st ->
  Network.steps stamp sends forwards sum_t [] add_sum one_sum l' st = Some st' ->
  legal_b (history_of stamp sum_t st') = true ->
  (forall s, could_in g s t -> (initial stamp stamp_dec workers start s + total_of (view_of stamp sum_t st b) s <= 0)%Z) ->
  forall s, could_in g s t -> truth (history_of stamp sum_t st') s = 0%Z.
Proof.
  intros (Hs & Hf & Hd) Hwf Hl Hl' Hlegal Hpass.
  eapply (sums_safety stamp stamp_dec (could_in g)
            (could_refl nat time Tle tle_refl (steps_of g))
            (could_trans nat time Tle tle_trans (steps_of g) (steps_earlier g))
            (could_antisym nat time Tle tle_trans tle_antisym (steps_of g) (steps_earlier g) (well_formed_cycles g rank Hwf))
            owned workers start start_is_owned sends forwards before distance Hs Hf Hd sum_t [] add_sum one_sum total_of).
  - reflexivity.
  - intros. apply total_of_app.
  - apply total_of_one.
  - exact Hl.
  - exact Hl'.
  - now apply (accepted_legal rank).
  - exact Hpass.
Qed.

End Runs.

(** ** What is printed for the Python to replay *)

Inductive data := N (z : Z) | C (l : list data).

Definition of_nat (n : nat) : data := N (Z.of_nat n).
Definition of_time (t : time) : data := C [of_nat (fst t); of_nat (snd t)].
Definition of_stamp (s : stamp) : data := C [of_nat (fst s); of_time (snd s)].
Definition of_count (c : stamp * Z) : data := C [of_stamp (fst c); N (snd c)].

(** Counts that are not zero, each pointstamp once. *)
Definition nonzero (l : sum_t) : sum_t :=
  flat_map (fun s => let z := total_of l s in if (z =? 0)%Z then [] else [(s, z)]) (nodup stamp_dec (map fst l)).

Definition positive_at (l : sum_t) (place : nat) : list time :=
  flat_map (fun c => if (fst (fst c) =? place) && (0 <? snd c)%Z then [snd (fst c)] else []) (nonzero l).

Definition frontiers_of (g : graph) (size : nat) (counts : sum_t) : data :=
  let own := map (positive_at counts) (seq 0 size) in
  let found := rounds (S size) g own in
  if settled g own found then C (map (fun ts => C (map of_time ts)) found) else N (-1).

(** *** Frontiers of a graph, after each of several changes *)
Fixpoint frontier_trace (g : graph) (size : nat) (counts : sum_t) (changes : list sum_t) : list data :=
  match changes with
  | [] => []
  | c :: rest => frontiers_of g size (counts ++ c) :: frontier_trace g size (counts ++ c) rest
  end.

(** *** An exchange, decision by decision: what a flush sends to each member, and a worker's counts and frontiers after the rest *)
Inductive decision :=
| Does (e : event stamp)
| Flushes (w : nat) (members : list nat)
| Receives (w b : nat).

Section ExchangeTrace.
Variable g : graph.
Variable size workers : nat.
Variable begins : sum_t.                                  (* the counts that all begin with: so many as there are workers *)
Variable sends : nat -> nat -> bool.
Variable forwards : nat -> nat -> nat -> bool.

Notation network := (state stamp sum_t).
Definition network_step := Network.step stamp sends forwards sum_t [] add_sum one_sum.

Definition shows (st : network) (w : nat) : list data :=
  let counts := begins ++ view_of stamp sum_t st w in
  [C (map of_count (nonzero counts)); frontiers_of g size counts].

Fixpoint flush_all (w : nat) (members : list nat) (st : network) : option network :=
  match members with
  | [] => Some st
  | b :: rest => match network_step (Flush stamp w b) st with Some st' => flush_all w rest st' | None => None end
  end.

Fixpoint exchange_trace (l : list decision) (st : network) : list data :=
  match l with
  | [] => []
  | Does e :: rest =>
      match network_step (Do stamp e) st with
      | Some st' => C (shows st' (who stamp e)) :: exchange_trace rest st'
      | None => [N (-1)]
      end
  | Flushes w members :: rest =>
      match flush_all w members st with
      | Some st' => C (map (fun b => C (map of_count (nonzero (box_of stamp sum_t st w b)))) members) :: exchange_trace rest st'
      | None => [N (-1)]
      end
  | Receives w b :: rest =>
      match network_step (Deliver stamp w b) st with
      | Some st' => C (shows st' b) :: exchange_trace rest st'
      | None => [N (-1)]
      end
  end.
End ExchangeTrace.

Fixpoint statements (l : list decision) : list (event stamp) :=
  match l with [] => [] | Does e :: rest => statements rest ++ [e] | _ :: rest => statements rest end.

Definition exchange_case g size workers own_places outputs rank ways sends forwards before distance (l : list decision) : data :=
  if ways && well_formed g rank && legal_b g own_places workers outputs (statements l) && check workers sends forwards before distance
  then C (exchange_trace g size (flat_map (fun s => [(s, Z.of_nat workers)]) outputs) sends forwards l (begin stamp sum_t []))
  else N (-2).

(** *** Compaction and reduction *)
Definition compaction_trace (l : list (time * list time)) : data := C (map (fun c => of_time (advanced (fst c) (snd c))) l).

Definition reduction_trace (values : nat) (most : bool) (batches : list (list (time * nat * Z))) : data :=
  C (map (fun c => match c with (t, w, d) => C [of_time t; of_nat w; N d] end)
       (consolidated values (reduction values (if most then largest values else number_of values) batches))).

(** All that a join sends: pairs of equal keys, at the least upper bounds of their times; the rows are numbers (key, value). *)
Definition pairs_of (values : nat) (x y : nat * nat) : list ((nat * nat) * Z) :=
  if fst x =? fst y then [((fst x, snd x * values + snd y), 1%Z)] else [].

Definition pair_dec (a b : nat * nat) : {a = b} + {a <> b}.
Proof. decide equality; apply Nat.eq_dec. Defined.

Definition join_trace (values : nat) (left right : list ((nat * nat) * time * Z)) : data :=
  let all := Collections.meet time lub (nat * nat) (pairs_of values) left right in
  let dec := fun (a b : (nat * nat) * time) => if pair_dec (fst a) (fst b) then (if time_dec (snd a) (snd b) then true else false) else false in
  let sum := fun k => fold_right (fun c s => ((if dec (fst c) k then snd c else 0) + s)%Z) 0%Z all in
  let fix distinct l seen := match l with
    | [] => []
    | c :: l => if existsb (dec (fst c)) seen then distinct l seen else fst c :: distinct l (fst c :: seen) end in
  C (flat_map (fun k => let d := sum k in
       if (d =? 0)%Z then [] else [C [of_time (snd k); of_nat (fst (fst k)); of_nat (snd (fst k)); N d]]) (distinct all [])).
