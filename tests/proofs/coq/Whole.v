(** From inputs to output: where a worker's frontier at an input has passed a time, what that input has received, on all workers,
    adds up to the function of what was put into the dataflow.

    A dataflow of collections is a graph of nodes: inputs from outside, linear operators (with those that enter, leave and go round
    a loop), joins, reductions, and ports, which are the inputs of operators. A run is any list of activations of any workers that
    obeys the operator contract of [Exchange] and whose operators are machines of [Collections]. The function is the solution of one
    equation for each node and time, and there is one solution at most. *)
From Coq Require Import List ZArith Lia Arith Bool Permutation Wellfounded.
From Timely Require Import Exchange Network Graph Compaction Reduce Collections.
Import ListNotations.
Open Scope Z_scope.

Section Whole.

Variable T : Type.
Variable T_dec : forall a b : T, {a = b} + {a <> b}.
Variable le : T -> T -> bool.
Variables lub glb : T -> T -> T.
Hypothesis le_refl : forall a, le a a = true.
Hypothesis le_trans : forall a b c, le a b = true -> le b c = true -> le a c = true.
Hypothesis le_antisym : forall a b, le a b = true -> le b a = true -> a = b.
Hypothesis lub_left : forall a b, le a (lub a b) = true.
Hypothesis lub_right : forall a b, le b (lub a b) = true.
Hypothesis lub_least : forall a b c, le a c = true -> le b c = true -> le (lub a b) c = true.
Hypothesis glb_left : forall a b, le (glb a b) a = true.
Hypothesis glb_right : forall a b, le (glb a b) b = true.
Hypothesis glb_greatest : forall a b c, le c a = true -> le c b = true -> le c (glb a b) = true.

Variable D : Type.
Variable D_dec : forall a b : D, {a = b} + {a <> b}.
Variable L : Type.
Variable L_dec : forall a b : L, {a = b} + {a <> b}.
Variable workers : nat.

Notation collection := (collection D).
Notation change := (D * T * Z)%type.
Notation same := (same D D_dec).
Notation count := (count D D_dec).
Notation weight := (weight D).
Notation image := (image D).
Notation product := (product D).
Notation upto := (upto T le D).
Notation within := (within T D).
Notation act := (act T D L).
Notation stamp := (L * T)%type.
Notation row := (row T D).
Notation time := (time T D).

(** ** The dataflow *)

Inductive node :=
| Given                                                                (* the program puts changes in *)
| Port (sources : list L)                                              (* an input of an operator: all that its sources send *)
| Linear (f : T -> option T) (m : D -> collection) (input : L)         (* also: enter, leave and go round a loop *)
| Join (meets : D -> D -> collection) (left right : L)
| Reduction (f : (D -> Z) -> D -> Z) (home : D -> nat) (input : L).    (* [home]: the worker that has the key of a result *)

Variable node_of : L -> node.

(** The worker that a row goes to at an input that is exchanged. *)
Variable to : L -> D -> nat.

Definition inputs (l : L) : list L :=
  match node_of l with Linear _ _ i => [i] | Join _ a b => [a; b] | Reduction _ _ i => [i] | _ => [] end.

Definition is_port (l : L) : bool := match node_of l with Port _ => true | _ => false end.
Definition sources (l : L) : list L := match node_of l with Port s => s | _ => [] end.

Variable ports : list L.
Hypothesis ports_once : NoDup ports.
Hypothesis ports_all : forall l, In l ports <-> is_port l = true.
Hypothesis sources_send : forall l s, In s (sources l) -> is_port s = false.
Hypothesis inputs_ports : forall l i, In i (inputs l) -> is_port i = true.
Hypothesis inputs_apart : forall l m i, In i (inputs l) -> In i (inputs m) -> l = m.

Notation below := (below T le).
Hypothesis linear_monotone : forall l f m i, node_of l = Linear f m i ->
  forall a b y, le a b = true -> f b = Some y -> exists x, f a = Some x /\ le x y = true.
Hypothesis linear_directed : forall l f m i, node_of l = Linear f m i ->
  forall a b u, below f a u -> below f b u -> below f (lub a b) u.

(** Rows that meet are on one worker. *)
Hypothesis join_keyed : forall l meets a b, node_of l = Join meets a b -> forall x y, meets x y <> [] -> to a x = to b y.

(** A result depends on the rows of its key, which are on one worker; where there are none, there is none. *)
Hypothesis reduction_keyed : forall l f home i, node_of l = Reduction f home i ->
  forall a b d, (forall x, to i x = home d -> a x = b x) -> f a d = f b d.
Hypothesis reduction_home : forall l f home i, node_of l = Reduction f home i -> forall d, (home d < workers)%nat.
Hypothesis reduction_nothing : forall l f home i, node_of l = Reduction f home i -> forall d, f (fun _ => 0) d = 0.

(** What each node makes of times, for progress. *)
Definition edge (l : L) (g : T -> option T) (m : L) : Prop :=
  match node_of m with
  | Given => False
  | Port s => In l s /\ g = Some
  | Linear f _ i => l = i /\ g = f
  | Join _ a b => (l = a \/ l = b) /\ g = Some
  | Reduction _ _ i => l = i /\ g = Some
  end.

Definition Tle (a b : T) : Prop := le a b = true.
Definition step := edge_step L T edge.
Definition could := Graph.could L T Tle step.

(** Every loop adds to the time: nothing depends on itself at the same time or before, however far one looks back. *)
Definition feeds (a b : stamp) : Prop := exists g y, edge (fst a) g (fst b) /\ g (snd a) = Some y /\ Tle y (snd b).
Hypothesis loops_advance : well_founded feeds.

(** ** The function: one equation for each node and time *)

Variable given : L -> T -> collection.

Definition solves (v : L -> T -> collection) (l : L) (u : T) : Prop :=
  match node_of l with
  | Given => same (v l u) (given l u)
  | Port s => same (v l u) (flat_map (fun m => v m u) s)
  | Linear f m i =>
      (* nothing arrives in time; or what arrives has settled, from some time on *)
      ((forall s, ~ below f s u) -> same (v l u) []) /\
      (forall s1, below f s1 u -> exists s0, le s1 s0 = true /\ below f s0 u /\
         forall s, le s0 s = true -> below f s u -> same (v l u) (image m (v i s)))
  | Join meets a b => same (v l u) (product meets (v a u) (v b u))
  | Reduction f _ i => forall d, count (v l u) d = f (count (v i u)) d
  end.

Lemma feeds_self l m u : edge l Some m -> feeds (l, u) (m, u).
Proof. intros H. exists Some, u. repeat split; [assumption | apply le_refl]. Qed.

Lemma same_concat (v w : L -> collection) s : (forall m, In m s -> same (v m) (w m)) -> same (flat_map v s) (flat_map w s).
Proof.
  induction s as [| m s IH]; intros H; [apply same_refl |]. simpl.
  apply same_app; [apply H; now left | apply IH; intros; apply H; now right].
Qed.

(** There is one solution at most, on any set of stamps that has all which feed it. *)
Theorem one_solution (on : stamp -> Prop) v w :
  (forall a b, feeds a b -> on b -> on a) ->
  (forall l u, on (l, u) -> solves v l u) -> (forall l u, on (l, u) -> solves w l u) ->
  forall l u, on (l, u) -> same (v l u) (w l u).
Proof.
  intros Hclosed Hv Hw. enough (H : forall a, on a -> same (v (fst a) (snd a)) (w (fst a) (snd a))) by (intros l u; apply (H (l, u))).
  intros a. induction a as [[l u] IH] using (well_founded_induction loops_advance). intros Hon. simpl.
  specialize (Hv l u Hon). specialize (Hw l u Hon). unfold solves in *.
  assert (Hin : forall m, edge m Some l -> same (v m u) (w m u)).
  { intros m Hm. apply (IH (m, u)); [now apply feeds_self | apply Hclosed with (l, u); [now apply feeds_self | assumption]]. }
  destruct (node_of l) as [| s | f m i | meets a b | f home i] eqn:Hl.
  - apply same_trans with (given l u); [assumption | now apply same_sym].
  - apply same_trans with (flat_map (fun m => v m u) s); [assumption |].
    apply same_trans with (flat_map (fun m => w m u) s); [| now apply same_sym].
    apply same_concat. intros m Hm. apply Hin. unfold edge. rewrite Hl. auto.
  - intros d. destruct (Z.eq_dec (count (v l u) d) (count (w l u) d)) as [| Hne]; [assumption | exfalso].
    destruct Hv as [Hv0 Hv1], Hw as [Hw0 Hw1].
    assert (Hnone : forall s, ~ below f s u).
    { intros s1 H1. apply Hne. clear Hne. revert d.
      destruct (Hv1 s1 H1) as (s0 & _ & Hs0 & Hvs). destruct (Hw1 s1 H1) as (t0 & _ & Ht0 & Hwt).
      assert (Hb : below f (lub s0 t0) u) by (eapply linear_directed; eassumption).
      apply same_trans with (image m (v i (lub s0 t0))); [apply Hvs; auto |].
      apply same_trans with (image m (w i (lub s0 t0))); [| apply same_sym; apply Hwt; auto]. apply same_image.
      assert (Hfeeds : feeds (i, lub s0 t0) (l, u)).
      { unfold Collections.below, below_b in Hb. destruct (f (lub s0 t0)) as [y |] eqn:Hy; [| discriminate].
        exists f, y. simpl. unfold edge. rewrite Hl. auto. }
      apply (IH _ Hfeeds). now apply Hclosed with (l, u). }
    apply Hne. now rewrite (Hv0 Hnone d), (Hw0 Hnone d).
  - apply same_trans with (product meets (v a u) (v b u)); [assumption |].
    apply same_trans with (product meets (w a u) (w b u)); [| now apply same_sym].
    apply same_product; apply Hin; unfold edge; rewrite Hl; auto.
  - intros d. rewrite Hv, Hw. apply (reduction_keyed l f home i Hl). intros x _. apply Hin. unfold edge. rewrite Hl. auto.
Qed.

(** ** Recovery: a run that begins at a cut *)

(** The same equations of what another run was given. *)
Definition solves_of (g : L -> T -> collection) (v : L -> T -> collection) (l : L) (u : T) : Prop :=
  match node_of l with Given => same (v l u) (g l u) | _ => solves v l u end.

(** A cut of the dataflow: the stamps at or after it. What is after it follows from what is after it alone. For a boundary of the
    outermost scope these are the times at or after it, with any rounds; no [delay] takes changes over it. *)
Record cut (after : stamp -> Prop) : Prop := {
  cut_same : forall l u m, after (l, u) -> edge m Some l -> after (m, u);
  cut_linear : forall l f m i u s, node_of l = Linear f m i -> after (l, u) -> below f s u ->
    exists later, le s later = true /\ below f later u /\ after (i, later)
}.

(** What is at and after a cut depends on what the inputs have accumulated there alone: not on when it came to be so. *)
Theorem cut_decides after g v w :
  cut after -> (forall m s, node_of m = Given -> after (m, s) -> same (given m s) (g m s)) ->
  (forall l u, after (l, u) -> solves v l u) -> (forall l u, after (l, u) -> solves_of g w l u) ->
  forall l u, after (l, u) -> same (v l u) (w l u).
Proof.
  intros [Hsame Hlinear] Hgiven Hv Hw.
  enough (H : forall a, after a -> same (v (fst a) (snd a)) (w (fst a) (snd a))) by (intros l u; apply (H (l, u))).
  intros a. induction a as [[l u] IH] using (well_founded_induction loops_advance). intros Hon. simpl.
  specialize (Hv l u Hon). specialize (Hw l u Hon). unfold solves_of, solves in *.
  assert (Hin : forall m, edge m Some l -> same (v m u) (w m u)).
  { intros m Hm. apply (IH (m, u)); [now apply feeds_self | now apply (Hsame l u m)]. }
  destruct (node_of l) as [| s | f m i | meets a b | f home i] eqn:Hl.
  - apply same_trans with (given l u); [assumption |]. apply same_trans with (g l u); [now apply Hgiven | now apply same_sym].
  - apply same_trans with (flat_map (fun m => v m u) s); [assumption |].
    apply same_trans with (flat_map (fun m => w m u) s); [| now apply same_sym].
    apply same_concat. intros m Hm. apply Hin. unfold edge. rewrite Hl. auto.
  - intros d. destruct (Z.eq_dec (count (v l u) d) (count (w l u) d)) as [| Hne]; [assumption | exfalso].
    destruct Hv as [Hv0 Hv1], Hw as [Hw0 Hw1].
    assert (Hnone : forall s, ~ below f s u).
    { intros s1 H1. apply Hne. clear Hne. revert d.
      destruct (Hv1 s1 H1) as (s0 & _ & Hs0 & Hvs). destruct (Hw1 s1 H1) as (t0 & _ & Ht0 & Hwt).
      assert (Hb : below f (lub s0 t0) u) by (eapply linear_directed; eassumption).
      destruct (Hlinear l f m i u (lub s0 t0) Hl Hon Hb) as (later & Hle & Hbl & Hafter).
      assert (Hleft : le s0 later = true) by (apply le_trans with (lub s0 t0); auto).
      assert (Hright : le t0 later = true) by (apply le_trans with (lub s0 t0); auto).
      apply same_trans with (image m (v i later)); [apply Hvs; auto |].
      apply same_trans with (image m (w i later)); [| apply same_sym; apply Hwt; auto]. apply same_image.
      assert (Hfeeds : feeds (i, later) (l, u)).
      { unfold Collections.below, below_b in Hbl. destruct (f later) as [y |] eqn:Hy; [| discriminate].
        exists f, y. simpl. unfold edge. rewrite Hl. auto. }
      now apply (IH _ Hfeeds). }
    apply Hne. now rewrite (Hv0 Hnone d), (Hw0 Hnone d).
  - apply same_trans with (product meets (v a u) (v b u)); [assumption |].
    apply same_trans with (product meets (w a u) (w b u)); [| now apply same_sym].
    apply same_product; apply Hin; unfold edge; rewrite Hl; auto.
  - intros d. rewrite Hv, Hw. apply (reduction_keyed l f home i Hl). intros x _. apply Hin. unfold edge. rewrite Hl. auto.
Qed.

(** So what a checkpoint has of an input is enough: all that it was given up to the cut, at times that are advanced to it, and all
    that came later as it was. *)
Theorem compacted_inputs_decide after frontier (before later : L -> list change) v w :
  cut after -> (forall m s, after (m, s) -> beyond T le frontier s) ->
  (forall m s, node_of m = Given -> same (given m s) (upto s (compact T lub glb D frontier (before m) ++ later m))) ->
  (forall l u, after (l, u) -> solves v l u) ->
  (forall l u, after (l, u) -> solves_of (fun m s => upto s (before m ++ later m)) w l u) ->
  forall l u, after (l, u) -> same (v l u) (w l u).
Proof.
  intros Hcut Hbeyond Hgiven Hv Hw. apply (cut_decides after (fun m s => upto s (before m ++ later m)) v w Hcut); [| assumption | assumption].
  intros m s Hm Hon. apply same_trans with (1 := Hgiven m s Hm). unfold Collections.upto. rewrite !within_app.
  apply same_app; [| apply same_refl].
  pose proof (compact_upto T le lub glb le_refl le_trans lub_left lub_least glb_left glb_right glb_greatest D frontier (before m) s
                (Hbeyond m s Hon)) as Hcompact.
  unfold Collections.upto in Hcompact. rewrite Hcompact. apply same_refl.
Qed.

(** ** Runs *)

Definition stamp_dec (a b : stamp) : {a = b} + {a <> b}.
Proof. decide equality. Defined.

Definition owned (s : stamp) : bool := negb (is_port (fst s)).
Variable start : nat -> list stamp.
Hypothesis start_owned : forall p s, In s (start p) -> owned s = true.

Definition here (l : L) (a : act) : bool := if L_dec (place _ _ _ a) l then true else false.
Definition of (w : nat) (l : L) (r : list act) : list act := filter (fun a => (worker _ _ _ a =? w)%nat && here l a) r.

(** All that was sent at an output, sent to a port, and read at a port, on all workers. *)
Definition sent (r : list act) (l : L) : list change := all_sends T D L (filter (here l) r).
Definition sent_to (r : list act) (i : L) : list change := flat_map (sent r) (sources i).
Definition read (r : list act) (i : L) : list change := all_reads T D L L_dec i r.

(** What an activation tells the others: one statement. *)
Definition statement (a : act) : event stamp :=
  Event stamp (worker _ _ _ a)
    (map (fun x => (fst x, time (snd x))) (reads _ _ _ a) ++ map (fun t => (place _ _ _ a, t)) (drops _ _ _ a))
    (map (fun t => (place _ _ _ a, t)) (mints _ _ _ a) ++ flat_map (fun i => map (fun c => (i, time c)) (sent_to [a] i)) ports).

Definition statements (r : list act) : list (event stamp) := map statement r.
Notation holds w r s := (held stamp stamp_dec start w (statements r) s).

(** Each operator, on each worker, is its machine. What a reduction has left for later it holds a capability for. *)
Definition machine (r : list act) (w : nat) (l : L) : Prop :=
  match node_of l with
  | Linear f m i => linear T le D D_dec L L_dec f m i (of w l r)
  | Join meets a b => exists ta tb fa fb, joining T le lub glb D D_dec L L_dec meets a b (of w l r) ta tb fa fb
  | Reduction f _ i => exists ti so later frontier,
      reducing T le lub glb D D_dec L L_dec f i (of w l r) ti so later frontier /\
      forall p, In p later -> exists s, le s p = true /\ 0 < holds w r (l, s)
  | _ => True
  end.

Record valid (r : list act) : Prop := {
  valid_contract : legal stamp stamp_dec could owned workers start (statements r);
  valid_places : forall a, In a r -> is_port (place _ _ _ a) = false;
  valid_inputs : forall a i c, In a r -> In (i, c) (reads _ _ _ a) -> In i (inputs (place _ _ _ a));
  valid_exchange : forall a i c, In a r -> In (i, c) (reads _ _ _ a) ->
    match node_of (place _ _ _ a) with Linear _ _ _ => True | _ => to i (row c) = worker _ _ _ a end;
  valid_once : forall i, exists unread, Permutation (sent_to r i) (read r i ++ unread);   (* what is read was sent, and is read once *)
  valid_machines : forall w l, (w < workers)%nat -> machine r w l
}.

(** What has accumulated: at a port what was read, at an output what was sent. *)
Definition accumulated (r : list act) (l : L) (u : T) : collection := upto u (if is_port l then read r l else sent r l).

(** Nothing is left that could result in a stamp. *)
Definition over (r : list act) (b : stamp) : Prop := forall a, could a b -> truth stamp stamp_dec workers start (statements r) a = 0.

(** *** Messages: what a port has read is what was sent to it, where no message is left *)

Definition at_time (s : T) (c : list change) : Z := occ T T_dec (map time c) s.

Lemma occ_app {X} dec (a b : list X) s : occ X dec (a ++ b) s = occ X dec a s + occ X dec b s.
Proof. unfold occ. rewrite count_occ_app. lia. Qed.

Lemma at_time_app s a b : at_time s (a ++ b) = at_time s a + at_time s b.
Proof. unfold at_time. now rewrite map_app, occ_app. Qed.

Lemma sent_cons a r l : sent (a :: r) l = sent [a] l ++ sent r l.
Proof. unfold sent, all_sends. simpl. destruct (here l a); simpl; now rewrite ?app_nil_r. Qed.

Lemma at_time_sent_to s a r i : at_time s (sent_to (a :: r) i) = at_time s (sent_to [a] i) + at_time s (sent_to r i).
Proof.
  unfold sent_to. induction (sources i) as [| l q IH]; [reflexivity |]. cbn [flat_map].
  rewrite sent_cons, !at_time_app, IH. lia.
Qed.

Lemma occ_pairs (i j : L) (c : list change) s :
  occ stamp stamp_dec (map (fun x => (i, time x)) c) (j, s) = if L_dec i j then at_time s c else 0.
Proof.
  unfold at_time, occ. induction c as [| x c IH]; cbn [map count_occ]; [now destruct (L_dec i j) |].
  destruct (stamp_dec (i, time x) (j, s)) as [H | H]; destruct (T_dec (time x) s) as [Ht | Ht]; destruct (L_dec i j) as [Hi | Hi];
    try congruence; try (exfalso; apply H; congruence); lia.
Qed.

Lemma occ_place (l : L) ts i s : l <> i -> occ stamp stamp_dec (map (fun t => (l, t)) ts) (i, s) = 0.
Proof.
  intros H. apply occ_not_in. intros Hin. apply in_map_iff in Hin. destruct Hin as (t & Heq & _). congruence.
Qed.

Lemma occ_to_ports (f : L -> list change) i s q :
  NoDup q -> In i q -> occ stamp stamp_dec (flat_map (fun j => map (fun c => (j, time c)) (f j)) q) (i, s) = at_time s (f i).
Proof.
  intros Hq Hi. induction Hq as [| j q Hj Hq IH]; [destruct Hi |].
  cbn [flat_map]. rewrite occ_app, occ_pairs. destruct (L_dec j i) as [-> | Hne].
  - assert (Hnone : occ stamp stamp_dec (flat_map (fun j => map (fun c => (j, time c)) (f j)) q) (i, s) = 0).
    { apply occ_not_in. intros Hin. apply in_flat_map in Hin. destruct Hin as (k & Hk & Hin). apply in_map_iff in Hin.
      destruct Hin as (c & Heq & _). injection Heq as -> _. contradiction. }
    lia.
  - destruct Hi as [-> | Hi]; [congruence |]. rewrite IH by assumption. lia.
Qed.

Lemma occ_reads (a : act) i s :
  occ stamp stamp_dec (map (fun x => (fst x, time (snd x))) (reads _ _ _ a)) (i, s) = at_time s (at_input T D L L_dec i a).
Proof.
  unfold at_time, occ, at_input. induction (reads _ _ _ a) as [| [j x] q IH]; [reflexivity |]. cbn [map filter fst snd count_occ].
  destruct (L_dec j i) as [-> | Hne]; cbn [map count_occ snd fst].
  - destruct (stamp_dec (i, time x) (i, s)) as [H | H]; destruct (T_dec (time x) s) as [Ht | Ht];
      try congruence; try (exfalso; apply H; congruence); lia.
  - destruct (stamp_dec (j, time x) (i, s)) as [H | H]; [congruence | assumption].
Qed.

Lemma messages r i s :
  (forall a, In a r -> is_port (place _ _ _ a) = false) -> is_port i = true ->
  total stamp stamp_dec (statements r) (i, s) = at_time s (sent_to r i) - at_time s (read r i).
Proof.
  intros Hplaces Hi. induction r as [| a r IH].
  - unfold sent_to, read. cbn. induction (sources i); [reflexivity | assumption].
  - assert (Hne : place _ _ _ a <> i) by (intros <-; rewrite (Hplaces a) in Hi by (now left); discriminate).
    cbn [statements map total]. fold (statements r). rewrite IH by (intros; apply Hplaces; now right).
    rewrite at_time_sent_to. unfold read, all_reads. cbn [flat_map]. rewrite at_time_app.
    unfold net, statement. cbn [gained lost]. rewrite !occ_app, !(occ_place _ _ i s Hne), (occ_to_ports (sent_to [a]) i s ports ports_once) by now apply ports_all.
    rewrite occ_reads. lia.
Qed.

Lemma weight_perm g a b : Permutation a b -> weight g a = weight g b.
Proof. induction 1 as [| [x n] a b _ IH | [x n] [y k] a | a b c _ IH1 _ IH2]; simpl; lia. Qed.

Lemma upto_perm u a b : Permutation a b -> Permutation (upto u a) (upto u b).
Proof.
  intros H. unfold Collections.upto, Collections.within. apply Permutation_map.
  induction H as [| x a b _ IH | x y a | a b c _ IH1 _ IH2]; simpl.
  - constructor.
  - destruct (le (Collections.time T D x) u); [now constructor | assumption].
  - destruct (le (Collections.time T D x) u), (le (Collections.time T D y) u); try reflexivity. apply perm_swap.
  - now transitivity (filter (fun x => le (Collections.time T D x) u) b).
Qed.

Lemma port_right r i u :
  valid r -> is_port i = true -> over r (i, u) -> same (upto u (read r i)) (flat_map (fun l => upto u (sent r l)) (sources i)).
Proof.
  intros Hr Hi Hover. destruct (valid_once r Hr i) as (unread & Hperm).
  assert (Hnone : upto u unread = []).
  { apply within_none. intros c Hc. destruct (le (time c) u) eqn:Hle; [exfalso | reflexivity].
    assert (Htruth : truth stamp stamp_dec workers start (statements r) (i, time c) = 0).
    { apply Hover. exists (time c). split; [constructor | exact Hle]. }
    unfold truth in Htruth.
    rewrite (initial_free stamp stamp_dec owned workers start start_owned) in Htruth by (unfold owned; simpl; now rewrite Hi).
    rewrite (messages r i (time c) (valid_places r Hr) Hi) in Htruth.
    assert (Hsum : at_time (time c) (sent_to r i) = at_time (time c) (read r i) + at_time (time c) unread).
    { rewrite <- at_time_app. unfold at_time, occ. f_equal. apply Permutation_count_occ. now apply Permutation_map. }
    assert (0 < at_time (time c) unread); [| lia]. apply occ_in. now apply in_map. }
  intros d. unfold Collections.count. transitivity (weight (is D D_dec d) (upto u (sent_to r i))).
  - rewrite (weight_perm _ _ _ (upto_perm u _ _ Hperm)), upto_app, weight_app, Hnone. simpl. lia.
  - unfold sent_to. induction (sources i) as [| l q IH]; [reflexivity |]. cbn [flat_map]. now rewrite upto_app, !weight_app, IH.
Qed.

(** *** Operators: what all workers together have sent *)

Lemma of_in w l r a : In a (of w l r) <-> In a r /\ worker _ _ _ a = w /\ place _ _ _ a = l.
Proof.
  unfold of, here. rewrite filter_In, andb_true_iff, Nat.eqb_eq. destruct (L_dec (place _ _ _ a) l); intuition congruence.
Qed.

Lemma who_works r a : valid r -> In a r -> (worker _ _ _ a < workers)%nat.
Proof.
  intros Hr Ha. pose proof (legal_who _ _ _ _ _ _ _ (valid_contract r Hr)) as Hw. rewrite Forall_forall in Hw.
  apply (Hw (statement a)). now apply in_map.
Qed.

(** A sum over the activations of an operator is one over the workers. *)
Lemma by_workers g u (part : act -> list change) l r :
  (forall a, In a r -> (worker _ _ _ a < workers)%nat) ->
  weight g (upto u (flat_map part (filter (here l) r)))
  = sum_to workers (fun w => weight g (upto u (flat_map part (of w l r)))).
Proof.
  induction r as [| a r IH]; intros Hw.
  - symmetry. simpl. clear. induction workers; simpl; lia.
  - assert (Hr : forall b, In b r -> (worker _ _ _ b < workers)%nat) by (intros; apply Hw; now right). specialize (IH Hr).
    set (new := if here l a then weight g (upto u (part a)) else 0).
    transitivity (new + weight g (upto u (flat_map part (filter (here l) r)))).
    + subst new. simpl. destruct (here l a); simpl; [rewrite upto_app, weight_app |]; lia.
    + rewrite IH. transitivity (sum_to workers (fun w => (if (worker _ _ _ a =? w)%nat then new else 0)) +
                               sum_to workers (fun w => weight g (upto u (flat_map part (of w l r))))).
      * f_equal. symmetry. rewrite (sum_to_single workers _ (worker _ _ _ a)).
        -- now rewrite Nat.eqb_refl.
        -- apply Hw. now left.
        -- intros q _ Hq. destruct (Nat.eqb_spec (worker _ _ _ a) q); congruence.
      * rewrite <- sum_to_add. apply sum_to_ext. intros w _. subst new. unfold of. simpl.
        destruct (worker _ _ _ a =? w)%nat, (here l a); simpl; rewrite ?upto_app, ?weight_app; lia.
Qed.

Lemma read_here r l i : valid r -> In i (inputs l) -> read r i = all_reads T D L L_dec i (filter (here l) r).
Proof.
  intros Hr Hi. unfold read, all_reads. assert (Hin := valid_inputs r Hr). clear Hr.
  induction r as [| a r IH]; [reflexivity |]. simpl. rewrite IH by (intros; eapply Hin; [now right | eassumption]).
  unfold here at 2. destruct (L_dec (place _ _ _ a) l) as [Heq | Hne]; [reflexivity |].
  replace (at_input T D L L_dec i a) with (@nil change); [reflexivity |]. unfold at_input.
  replace (filter _ (reads _ _ _ a)) with (@nil (L * change)); [reflexivity |].
  assert (Hnone : forall x, In x (reads T D L a) -> fst x <> i).
  { intros [j c] Hx Heq. simpl in Heq. subst j. apply Hne. apply (inputs_apart _ _ i); [| assumption].
    now apply (Hin a i c); [left |]. }
  induction (reads _ _ _ a) as [| x q IHq]; [reflexivity |]. simpl.
  destruct (L_dec (fst x) i) as [Heq |]; [exfalso; now apply (Hnone x (or_introl eq_refl)) | apply IHq; intros; apply Hnone; now right].
Qed.

(** The rows that a worker has read at an exchanged input are its own. *)
Lemma exchanged r w l i x n :
  valid r -> match node_of l with Linear _ _ _ => False | _ => True end ->
  forall u, In (x, n) (upto u (all_reads T D L L_dec i (of w l r))) -> to i x = w.
Proof.
  intros Hr Hl u Hin. unfold Collections.upto, Collections.within in Hin. apply in_map_iff in Hin. destruct Hin as (c & Heq & Hc).
  injection Heq as Hx _. apply filter_In in Hc. destruct Hc as [Hc _]. unfold all_reads in Hc. apply in_flat_map in Hc.
  destruct Hc as (a & Ha & Hc). apply of_in in Ha. destruct Ha as (Ha & Hw & Hp). unfold at_input in Hc. apply in_map_iff in Hc.
  destruct Hc as ([j d] & Heq & Hc). simpl in Heq. subst d. apply filter_In in Hc. destruct Hc as [Hc Hj]. simpl in Hj.
  destruct (L_dec j i) as [-> |]; [| discriminate]. pose proof (valid_exchange r Hr a i c Ha Hc) as H. rewrite Hp in H.
  rewrite <- Hx, <- Hw. destruct (node_of l); tauto.
Qed.

Lemma weight_ext_in g h c : (forall x n, In (x, n) c -> g x = h x) -> weight g c = weight h c.
Proof.
  induction c as [| [x n] c IH]; intros H; simpl; [reflexivity |].
  rewrite (H x n) by now left. rewrite IH; [reflexivity | intros y k Hy; apply (H y k); now right].
Qed.

Lemma linear_right r l f m i u :
  valid r -> node_of l = Linear f m i ->
  same (upto u (sent r l)) (image m (within (fun s => below_b T le f s u) (read r i))).
Proof.
  intros Hr Hl. rewrite (read_here r l i Hr) by (unfold inputs; rewrite Hl; now left). apply linear_law.
  unfold linear. apply Forall_forall. intros a Ha. apply filter_In in Ha. destruct Ha as [Ha Hh].
  assert (Hm := valid_machines r Hr (worker _ _ _ a) l (who_works r a Hr Ha)). unfold machine in Hm. rewrite Hl in Hm.
  unfold linear in Hm. rewrite Forall_forall in Hm. apply Hm. apply of_in. repeat split; [assumption |].
  unfold here in Hh. now destruct (L_dec (place _ _ _ a) l).
Qed.

Lemma join_right r l meets a b u :
  valid r -> node_of l = Join meets a b -> same (upto u (sent r l)) (product meets (upto u (read r a)) (upto u (read r b))).
Proof.
  intros Hr Hl. apply same_of_weight. intros g.
  assert (Hworks : forall x, In x r -> (worker _ _ _ x < workers)%nat) by (intros; now apply who_works with r).
  unfold sent, all_sends. rewrite by_workers by assumption.
  rewrite weight_product, (read_here r l a Hr), (read_here r l b Hr) by (unfold inputs; rewrite Hl; simpl; auto).
  change (all_reads T D L L_dec a (filter (here l) r)) with (flat_map (at_input T D L L_dec a) (filter (here l) r)).
  rewrite by_workers by assumption. apply sum_to_ext. intros w Hlt.
  assert (Hm := valid_machines r Hr w l Hlt). unfold machine in Hm. rewrite Hl in Hm. destruct Hm as (ta & tb & fa & fb & Hm).
  apply join_law in Hm; try assumption. destruct Hm as (_ & _ & Hlaw).
  fold (all_sends T D L (of w l r)). rewrite (same_weight D D_dec _ _ g (Hlaw u)), weight_product.
  fold (all_reads T D L L_dec a (of w l r)). apply weight_ext_in. intros x n Hx.
  assert (Hx' : to a x = w) by (eapply exchanged; [exact Hr | | exact Hx]; now rewrite Hl).
  change (all_reads T D L L_dec b (filter (here l) r)) with (flat_map (at_input T D L L_dec b) (filter (here l) r)).
  rewrite by_workers by assumption. symmetry.
  assert (Hpart : forall q, q <> w -> weight (fun y => weight g (meets x y)) (upto u (all_reads T D L L_dec b (of q l r))) = 0).
  { intros q Hq. rewrite (weight_ext_in _ (fun _ => 0)); [apply weight_zero |]. intros y k Hy.
    assert (Hy' : to b y = q) by (eapply exchanged; [exact Hr | | exact Hy]; now rewrite Hl).
    destruct (meets x y) eqn:Hp; [reflexivity |]. exfalso. apply Hq. rewrite <- Hx', <- Hy'. symmetry.
    apply (join_keyed l meets a b Hl). congruence. }
  rewrite (sum_to_single workers _ w); [reflexivity | assumption | intros q _ Hq; now apply Hpart].
Qed.

Lemma reduction_right r l f home i u :
  valid r -> node_of l = Reduction f home i -> over r (l, u) ->
  forall d, count (upto u (sent r l)) d = f (count (upto u (read r i))) d.
Proof.
  intros Hr Hl Hover d.
  assert (Hworks : forall x, In x r -> (worker _ _ _ x < workers)%nat) by (intros; now apply who_works with r).
  assert (Hlegal := valid_contract r Hr).
  assert (Hown : forall s, owned (l, s) = true) by (intros s; unfold owned, is_port; simpl; now rewrite Hl).
  assert (Hkeyed := reduction_keyed l f home i Hl).
  assert (Hnonlinear : match node_of l with Linear _ _ _ => False | _ => True end) by now rewrite Hl.
  unfold Collections.count, sent, all_sends. rewrite by_workers by assumption.
  assert (Hpart : forall w, (w < workers)%nat -> weight (is D D_dec d) (upto u (flat_map (sends T D L) (of w l r)))
                            = f (count (upto u (all_reads T D L L_dec i (of w l r)))) d).
  { intros w Hlt. assert (Hm := valid_machines r Hr w l Hlt). unfold machine in Hm. rewrite Hl in Hm.
    destruct Hm as (ti & so & later & frontier & Hm & Hcover).
    apply reduce_law in Hm; try assumption; [| intros; now apply Hkeyed | now apply (reduction_nothing l f home i)].
    destruct Hm as (_ & _ & Hlaw). apply Hlaw. intros p Hp. destruct (le p u) eqn:Hle; [exfalso | reflexivity].
    destruct (Hcover p Hp) as (s & Hs & Hheld).
    assert (Htruth : truth stamp stamp_dec workers start (statements r) (l, s) = 0).
    { apply Hover. exists s. split; [constructor | now apply le_trans with p]. }
    rewrite truth_held in Htruth by (eapply legal_who; eassumption).
    assert (0 < sum_to workers (fun q => holds q r (l, s))); [| lia].
    apply (sum_to_positive workers _ w); [| assumption | assumption].
    intros q _. eapply held_nonneg; [eassumption | apply Hown]. }
  assert (Helse : forall w x, to i x <> w -> count (upto u (all_reads T D L L_dec i (of w l r))) x = 0).
  { intros w x Hx. unfold Collections.count. rewrite (weight_ext_in _ (fun _ => 0)); [apply weight_zero |]. intros y n Hy. unfold is.
    destruct (D_dec y x) as [-> |]; [exfalso; apply Hx; now apply (exchanged r w l i x n Hr Hnonlinear u) | reflexivity]. }
  assert (Hhome := reduction_home l f home i Hl d).
  rewrite (sum_to_ext workers _ _ Hpart), (sum_to_single workers _ (home d)); [| assumption |].
  - apply Hkeyed. intros x Hx. rewrite (read_here r l i Hr) by (unfold inputs; rewrite Hl; now left).
    change (all_reads T D L L_dec i (filter (here l) r)) with (flat_map (at_input T D L L_dec i) (filter (here l) r)).
    unfold Collections.count. rewrite by_workers by assumption.
    rewrite (sum_to_single workers _ (home d)); [reflexivity | assumption |]. intros q _ Hq. apply (Helse q x). congruence.
  - intros q _ Hq. rewrite (Hkeyed _ (fun _ => 0)); [now apply (reduction_nothing l f home i) |].
    intros x Hx. apply Helse. congruence.
Qed.

(** ** The theorems *)

(** Where nothing is left that could result in it, every node's equation holds of what has accumulated. *)
Theorem equations_hold r l u :
  valid r -> (forall m t, node_of m = Given -> same (given m t) (upto t (sent r m))) -> over r (l, u) ->
  solves (accumulated r) l u.
Proof.
  intros Hr Hgiven Hover. unfold solves.
  assert (Hat : forall m, In m (inputs l) -> forall t, accumulated r m t = upto t (read r m)).
  { intros m Hm t. unfold accumulated. now rewrite (inputs_ports l m Hm). }
  unfold inputs in Hat. destruct (node_of l) as [| s | f m i | meets a b | f home i] eqn:Hl;
    assert (Hown : is_port l = match node_of l with Port _ => true | _ => false end) by reflexivity; rewrite Hl in Hown;
    unfold accumulated at 1; rewrite Hown.
  - apply same_sym. now apply Hgiven.
  - apply same_trans with (flat_map (fun m => upto u (sent r m)) s).
    + pose proof (port_right r l u Hr Hown Hover) as H. unfold sources in H. now rewrite Hl in H.
    + apply same_concat. intros m Hm. unfold accumulated. rewrite (sources_send l m); [apply same_refl | unfold sources; now rewrite Hl].
  - pose proof (linear_right r l f m i u Hr Hl) as Hright. split.
    + intros Hnone. apply same_trans with (1 := Hright). rewrite within_none; [apply same_refl |]. intros c _.
      destruct (below_b T le f (time c) u) eqn:Hb; [exfalso; now apply (Hnone (time c)) | reflexivity].
    + intros s1 H1. destruct (settles T le lub le_refl le_trans lub_left lub_right D f (linear_monotone l f m i Hl)
                                (linear_directed l f m i Hl) (read r i) u s1 H1) as (s0 & Ha & Hb & Hc).
      exists s0. repeat split; try assumption. intros s Hs Hbs. unfold accumulated. rewrite Hown.
      rewrite (inputs_ports l i) by (unfold inputs; rewrite Hl; now left). now rewrite <- (Hc s Hs Hbs).
  - rewrite !Hat by (simpl; auto). now apply (join_right r l meets a b u).
  - intros d. rewrite !Hat by (simpl; auto). now apply (reduction_right r l f home i u).
Qed.

Hypothesis cycles_advance : forall l t u b, step (l, t) b -> reaches L T step b (l, u) -> ~ Tle u t.

Lemma edge_monotone l g m : edge l g m -> Graph.monotone T Tle g.
Proof.
  unfold edge, Graph.monotone, Tle. intros He a b y Hle Hb.
  destruct (node_of m) as [| s | f h i | meets x z | f home i] eqn:Hm; [destruct He | | | |].
  - destruct He as [_ ->]. injection Hb as <-. now exists a.
  - destruct He as [_ ->]. eapply linear_monotone; eassumption.
  - destruct He as [_ ->]. injection Hb as <-. now exists a.
  - destruct He as [_ ->]. injection Hb as <-. now exists a.
Qed.

Lemma step_earlier l t u b : Tle t u -> step (l, u) b -> exists v, step (l, t) (fst b, v) /\ Tle v (snd b).
Proof. apply edges_earlier. apply edge_monotone. Qed.

Lemma Tle_trans a b c : Tle a b -> Tle b c -> Tle a c.
Proof. apply le_trans. Qed.

Lemma could_trans a b c : could a b -> could b c -> could a c.
Proof. apply (Graph.could_trans L T Tle Tle_trans step step_earlier). Qed.

Lemma feeds_could a b : feeds a b -> could a b.
Proof.
  destruct a as [l t], b as [m u]. intros (g & y & He & Hy & Hle). exists y. simpl in *. split; [| assumption].
  eapply reaches_step; [econstructor; eassumption | constructor].
Qed.

Lemma over_feeds r a b : feeds a b -> over r b -> over r a.
Proof. intros H Hb x Hx. apply Hb. apply could_trans with a; [assumption | now apply feeds_could]. Qed.

(** The whole: workers act, flush batches and receive them in any order. If a worker once counted nothing that could result in
    [(out, t)], then, at that moment or any later one, what the port [out] has received on all workers adds up, at [t], to the
    one function [v] of what was put in. *)
Variable sends_on : nat -> nat -> bool.
Variable forwards : nat -> nat -> nat -> bool.
Variable before : nat -> nat -> nat.
Variable distance : nat -> nat -> nat.
Hypothesis sends_via : forall p b, sends_on p b = via before p b p.
Hypothesis forwards_via : forall p w b c, via before w b p = true -> forwards w b c = via before b c p.
Hypothesis before_nearer : forall p b, p <> b -> (distance p (before p b) < distance p b)%nat.

Theorem from_inputs_to_output acts st acts' st' b r out t v :
  log_steps stamp sends_on forwards acts (log_begin stamp) = Some st ->
  log_steps stamp sends_on forwards acts' st = Some st' ->
  history_of stamp (list (event stamp)) st' = statements r -> valid r ->
  (forall m s, node_of m = Given -> same (given m s) (upto s (sent r m))) ->
  (forall a, (0 < counts stamp stamp_dec workers start st b a) -> ~ could a (out, t)) ->
  is_port out = true ->
  (forall l s, could (l, s) (out, t) -> solves v l s) ->
  same (upto t (read r out)) (v out t).
Proof.
  intros H H' Hhistory Hr Hgiven Hnone Hout Hv.
  assert (Hlegal := valid_contract r Hr). rewrite <- Hhistory in Hlegal.
  assert (Hover : over r (out, t)).
  { destruct (network_safety stamp stamp_dec could (Graph.could_refl L T Tle le_refl step) could_trans
                (Graph.could_antisym L T Tle Tle_trans le_antisym step step_earlier cycles_advance) owned workers start start_owned
                sends_on forwards before distance sends_via forwards_via before_nearer acts st acts' st' b (out, t) H H' Hlegal)
      as [Htruth _]; [| unfold over; rewrite <- Hhistory; exact Htruth].
    intros a Ha. destruct (Z_lt_le_dec 0 (counts stamp stamp_dec workers start st b a)) as [Hpos | Hneg]; [| assumption].
    exfalso. now apply (Hnone a). }
  assert (Hrefl : could (out, t) (out, t)) by apply (Graph.could_refl L T Tle le_refl step).
  pose proof (one_solution (fun a => could a (out, t)) (accumulated r) v) as Hone.
  unfold accumulated in Hone at 2. specialize (Hone (fun a c Hac Hc => could_trans a c (out, t) (feeds_could a c Hac) Hc)).
  assert (Hsolves : forall l u, could (l, u) (out, t) -> solves (accumulated r) l u).
  { intros l u Hc. apply equations_hold; [assumption | assumption |]. intros a Ha. apply Hover. now apply could_trans with (l, u). }
  specialize (Hone Hsolves Hv out t Hrefl). simpl in Hone. now rewrite Hout in Hone.
Qed.

(** A run that resumes from a checkpoint, on any number of workers: it is given what the inputs had accumulated at the cut, and what
    came later. What its output then holds at any time after the cut is what [w] says, the function of what the first run was given. *)
Theorem resumed_output acts st acts' st' b r out t v after g w :
  log_steps stamp sends_on forwards acts (log_begin stamp) = Some st ->
  log_steps stamp sends_on forwards acts' st = Some st' ->
  history_of stamp (list (event stamp)) st' = statements r -> valid r ->
  (forall m s, node_of m = Given -> same (given m s) (upto s (sent r m))) ->
  (forall a, (0 < counts stamp stamp_dec workers start st b a) -> ~ could a (out, t)) ->
  is_port out = true -> (forall l s, solves v l s) ->
  cut after -> after (out, t) ->
  (forall m s, node_of m = Given -> after (m, s) -> same (given m s) (g m s)) ->
  (forall l s, after (l, s) -> solves_of g w l s) ->
  same (upto t (read r out)) (w out t).
Proof.
  intros H H' Hhistory Hr Hput Hnone Hout Hv Hcut Hafter Hgiven Hw. apply same_trans with (v out t).
  - eapply from_inputs_to_output; eauto.
  - apply (cut_decides after g v w); auto.
Qed.

End Whole.
