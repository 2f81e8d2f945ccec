(** Collections: what each operator owes at every time, and the machines that keep to it.

    A collection is a list of rows with counts; what changes it is a list of rows, times and differences. Two collections are the
    same if they count every row the same. A machine is what the activations of one operator on one worker read and send, one
    after the other. It keeps traces whose times are advanced by a frontier, and may leave corrections for later. The theorems say
    what all it has sent adds up to, at any time, of all it has read. *)
From Coq Require Import List ZArith Lia Bool.
From Timely Require Import Compaction Reduce.
Import ListNotations.
Open Scope Z_scope.

(** ** Collections *)

Section Rows.
Variable D : Type.
Variable eq_dec : forall a b : D, {a = b} + {a <> b}.

Definition collection := list (D * Z).

(** The sum of what each row weighs, times its count. *)
Fixpoint weight (g : D -> Z) (c : collection) : Z :=
  match c with [] => 0 | (x, n) :: rest => n * g x + weight g rest end.

Definition is (d x : D) : Z := if eq_dec x d then 1 else 0.
Definition count (c : collection) (d : D) : Z := weight (is d) c.
Definition same (a b : collection) : Prop := forall d, count a d = count b d.

Lemma weight_app g a b : weight g (a ++ b) = weight g a + weight g b.
Proof. induction a as [| [x n] a IH]; simpl; lia. Qed.

Lemma weight_ext g h c : (forall x, g x = h x) -> weight g c = weight h c.
Proof. intros H. induction c as [| [x n] c IH]; simpl; [reflexivity |]. now rewrite H, IH. Qed.

Lemma weight_zero c : weight (fun _ => 0) c = 0.
Proof. induction c as [| [x n] c IH]; simpl; lia. Qed.

Lemma weight_plus g h c : weight (fun x => g x + h x) c = weight g c + weight h c.
Proof. induction c as [| [x n] c IH]; simpl; lia. Qed.

Lemma weight_times k g c : weight (fun x => k * g x) c = k * weight g c.
Proof. induction c as [| [x n] c IH]; simpl; lia. Qed.

(** Over a list of rows. *)
Fixpoint over (l : list D) (g : D -> Z) : Z := match l with [] => 0 | d :: l => g d + over l g end.

Lemma over_plus l g h : over l (fun d => g d + h d) = over l g + over l h.
Proof. induction l; simpl; lia. Qed.

Lemma over_ext l g h : (forall d, g d = h d) -> over l g = over l h.
Proof. intros H. induction l; simpl; [reflexivity |]. now rewrite H, IHl. Qed.

Lemma over_is l g x : NoDup l -> In x l -> over l (fun d => g d * is d x) = g x.
Proof.
  intros Hl Hx. induction Hl as [| d l Hd Hl IH]; [destruct Hx |]. simpl. unfold is at 1.
  assert (Hrest : ~ In x l -> over l (fun e => g e * is e x) = 0).
  { clear. intros H. induction l as [| e l IH]; simpl; [reflexivity |]. rewrite IH by (intros Hin; apply H; now right).
    unfold is. destruct (eq_dec x e) as [-> |]; [exfalso; apply H; now left | lia]. }
  destruct (eq_dec x d) as [-> | Hne].
  - rewrite Hrest by assumption. lia.
  - rewrite IH; [lia |]. destruct Hx; [congruence | assumption].
Qed.

Lemma weight_counts l g c : NoDup l -> (forall x, In x (map fst c) -> In x l) -> weight g c = over l (fun d => g d * count c d).
Proof.
  intros Hl Hin. induction c as [| [x n] c IH].
  - simpl. rewrite (over_ext l _ (fun _ => 0)) by (intros; unfold count; simpl; lia). clear. induction l; simpl; lia.
  - simpl. rewrite IH by (intros; apply Hin; now right).
    rewrite (over_ext l (fun d => g d * count ((x, n) :: c) d) (fun d => (n * g d) * is d x + g d * count c d))
      by (intros; unfold count; simpl; lia).
    rewrite over_plus, (over_is l (fun d => n * g d) x Hl) by (apply Hin; now left). reflexivity.
Qed.

(** Counts determine all weights. *)
Theorem same_weight a b g : same a b -> weight g a = weight g b.
Proof.
  intros H. set (l := nodup eq_dec (map fst a ++ map fst b)).
  assert (Hl : NoDup l) by apply NoDup_nodup.
  rewrite (weight_counts l g a Hl), (weight_counts l g b Hl).
  - apply over_ext. intros d. now rewrite (H d).
  - intros x Hx. apply nodup_In, in_or_app. now right.
  - intros x Hx. apply nodup_In, in_or_app. now left.
Qed.

Lemma same_refl a : same a a.
Proof. intros d. reflexivity. Qed.
Lemma same_sym a b : same a b -> same b a.
Proof. intros H d. now rewrite H. Qed.
Lemma same_trans a b c : same a b -> same b c -> same a c.
Proof. intros H K d. now rewrite H. Qed.
Lemma same_of_weight a b : (forall g, weight g a = weight g b) -> same a b.
Proof. intros H d. apply H. Qed.

(** Rows become other rows, with factors. *)
Definition times_all (n : Z) (c : collection) : collection := map (fun r => (fst r, n * snd r)) c.
Definition image (m : D -> collection) (c : collection) : collection := flat_map (fun r => times_all (snd r) (m (fst r))) c.

Lemma weight_times_all g n c : weight g (times_all n c) = n * weight g c.
Proof. induction c as [| [x k] c IH]; simpl; [lia |]. rewrite IH. lia. Qed.

Lemma weight_image g m c : weight g (image m c) = weight (fun x => weight g (m x)) c.
Proof. induction c as [| [x n] c IH]; simpl; [reflexivity |]. now rewrite weight_app, weight_times_all, IH. Qed.

Theorem same_image m a b : same a b -> same (image m a) (image m b).
Proof. intros H. apply same_of_weight. intros g. rewrite !weight_image. now apply same_weight. Qed.

(** Each row with each other. *)
Definition product (pair : D -> D -> collection) (a b : collection) : collection := image (fun x => image (pair x) b) a.

Lemma weight_product g pair a b : weight g (product pair a b) = weight (fun x => weight (fun y => weight g (pair x y)) b) a.
Proof. unfold product. rewrite weight_image. apply weight_ext. intros x. apply weight_image. Qed.

Theorem same_product pair a b c d : same a b -> same c d -> same (product pair a c) (product pair b d).
Proof.
  intros H K. apply same_of_weight. intros g. rewrite !weight_product, (same_weight a b _ H). apply weight_ext.
  intros x. now apply same_weight.
Qed.

End Rows.

(** ** Changes of collections *)

Section Machines.
Variable T : Type.
Variable le : T -> T -> bool.
Variables lub glb : T -> T -> T.
Hypothesis le_refl : forall a, le a a = true.
Hypothesis le_trans : forall a b c, le a b = true -> le b c = true -> le a c = true.
Hypothesis lub_left : forall a b, le a (lub a b) = true.
Hypothesis lub_right : forall a b, le b (lub a b) = true.
Hypothesis lub_least : forall a b c, le a c = true -> le b c = true -> le (lub a b) c = true.
Hypothesis glb_left : forall a b, le (glb a b) a = true.
Hypothesis glb_right : forall a b, le (glb a b) b = true.
Hypothesis glb_greatest : forall a b c, le c a = true -> le c b = true -> le c (glb a b) = true.

Variable D : Type.
Variable eq_dec : forall a b : D, {a = b} + {a <> b}.
Notation collection := (collection D).
Notation weight := (weight D).
Notation count := (count D eq_dec).
Notation same := (same D eq_dec).
Notation image := (image D).
Notation product := (product D).
Notation beyond := (beyond T le).
Notation interesting := (interesting T lub).

Notation change := (D * T * Z)%type.
Definition row (c : change) : D := fst (fst c).
Definition time (c : change) : T := snd (fst c).

(** What changes at times of a set add up to. *)
Definition within (P : T -> bool) (c : list change) : collection := map (fun x => (row x, snd x)) (filter (fun x => P (time x)) c).
Definition upto (u : T) : list change -> collection := within (fun s => le s u).

Lemma within_app P a b : within P (a ++ b) = within P a ++ within P b.
Proof. unfold within. now rewrite filter_app, map_app. Qed.

Lemma within_ext P Q c : (forall x, In x c -> P (time x) = Q (time x)) -> within P c = within Q c.
Proof. intros H. unfold within. f_equal. now apply filter_ext_in. Qed.

Lemma within_none P c : (forall x, In x c -> P (time x) = false) -> within P c = [].
Proof.
  intros H. unfold within. replace (filter _ c) with (@nil change); [reflexivity |].
  induction c as [| x c IH]; simpl; [reflexivity |]. rewrite (H x) by now left. apply IH. intros. apply H. now right.
Qed.

Lemma weight_within g P c : weight g (within P c) = fold_right (fun x s => (if P (time x) then snd x * g (row x) else 0) + s) 0 c.
Proof. unfold within. induction c as [| x c IH]; simpl; [reflexivity |]. destruct (P (time x)); simpl; rewrite IH; lia. Qed.

Lemma within_cons P x s n c : within P ((x, s, n) :: c) = if P s then (x, n) :: within P c else within P c.
Proof. unfold within. simpl. unfold time at 1. simpl. now destruct (P s). Qed.

Lemma within_map P y (h : D * Z -> Z) l :
  within P (map (fun r => (fst r, y, h r)) l) = if P y then map (fun r => (fst r, h r)) l else [].
Proof.
  unfold within. induction l as [| r l IH]; simpl; [now destruct (P y) |]. unfold time at 1. simpl.
  destruct (P y); simpl; rewrite IH; reflexivity.
Qed.

Lemma upto_cons u x s n c : upto u ((x, s, n) :: c) = if le s u then (x, n) :: upto u c else upto u c.
Proof. exact (within_cons (fun t => le t u) x s n c). Qed.

Lemma upto_app u a b : upto u (a ++ b) = upto u a ++ upto u b.
Proof. apply within_app. Qed.

Lemma count_app a b d : count (a ++ b) d = count a d + count b d.
Proof. apply weight_app. Qed.

Lemma same_app a b c d : same a b -> same c d -> same (a ++ c) (b ++ d).
Proof. intros H K x. rewrite !count_app. now rewrite (H x), (K x). Qed.

(** Times advanced by a frontier. Where it is empty nobody looks any more, and nothing is kept. *)
Definition compact (frontier : list T) (c : list change) : list change :=
  match frontier with [] => [] | _ => map (fun c => (row c, advance T lub glb (time c) frontier, snd c)) c end.

Theorem compact_upto frontier c q : beyond frontier q -> upto q (compact frontier c) = upto q c.
Proof.
  intros H. unfold compact. destruct frontier as [| f0 fs] eqn:Hf; [destruct H as (f & [] & _) |]. rewrite <- Hf in *. clear f0 fs Hf.
  unfold upto, within, time, row. induction c as [| [[x s] n] c IH]; simpl; [reflexivity |].
  rewrite (advance_indistinguishable T le lub glb) by assumption.
  destruct (le s q); simpl; now rewrite IH.
Qed.

Lemma beyond_later frontier s q : beyond frontier s -> le s q = true -> beyond frontier q.
Proof. intros (f & Hf & Hle) H. exists f. split; [assumption | now apply le_trans with s]. Qed.

(** ** One activation, as its operator sees it: what it reads at which input, and what it sends *)

Variable L : Type.
Variable L_dec : forall a b : L, {a = b} + {a <> b}.

Record act := Act { worker : nat; place : L; reads : list (L * change); sends : list change; drops : list T; mints : list T }.

Definition at_input (i : L) (a : act) : list change :=
  map snd (filter (fun r => if L_dec (fst r) i then true else false) (reads a)).
Definition all_reads (i : L) (acts : list act) : list change := flat_map (at_input i) acts.
Definition all_sends (acts : list act) : list change := flat_map sends acts.

(** ** Linear operators: a time becomes another, a row becomes rows with factors *)

Section Linear.
Variable f : T -> option T.
Variable m : D -> collection.
Variable input : L.

(** What arrives at or before [u]. *)
Definition below_b (s u : T) : bool := match f s with Some y => le y u | None => false end.
Definition below (s u : T) : Prop := below_b s u = true.

Definition moved (c : list change) : list change :=
  flat_map (fun x => match f (time x) with
                     | Some y => map (fun r => (fst r, y, snd x * snd r)) (m (row x))
                     | None => [] end) c.

Lemma moved_upto u c : upto u (moved c) = image m (within (fun s => below_b s u) c).
Proof.
  induction c as [| [[x s] n] c IH]; [reflexivity |]. rewrite within_cons. simpl. rewrite upto_app, IH.
  unfold time, row, below_b. simpl. destruct (f s) as [y |]; [| reflexivity].
  unfold upto. rewrite within_map. destruct (le y u); reflexivity.
Qed.

(** Every activation sends what becomes of what it reads, in any order, as far as it does not cancel. *)
Definition linear (acts : list act) : Prop :=
  Forall (fun a => forall u, same (upto u (sends a)) (upto u (moved (at_input input a)))) acts.

Theorem linear_law acts u :
  linear acts -> same (upto u (all_sends acts)) (image m (within (fun s => below_b s u) (all_reads input acts))).
Proof.
  intros H. rewrite <- moved_upto. induction H as [| a acts Ha _ IH]; [apply same_refl |].
  unfold all_sends, all_reads in *. simpl. unfold moved. rewrite flat_map_app. fold (moved (at_input input a)) (moved (flat_map (at_input input) acts)).
  rewrite !upto_app. apply same_app; [apply Ha | apply IH].
Qed.

(** Where times move monotonely, and what arrives in time has a bound that does: from some time on, all that arrives is there. *)
Hypothesis f_monotone : forall a b y, le a b = true -> f b = Some y -> exists x, f a = Some x /\ le x y = true.
Hypothesis f_directed : forall a b u, below a u -> below b u -> below (lub a b) u.

Lemma below_earlier a b u : le a b = true -> below b u -> below a u.
Proof.
  unfold below, below_b. intros Hle Hb. destruct (f b) as [y |] eqn:Hy; [| discriminate].
  destruct (f_monotone a b y Hle Hy) as (x & -> & Hx). now apply le_trans with y.
Qed.

Theorem settles c u s1 :
  below s1 u -> exists s0, le s1 s0 = true /\ below s0 u /\
    forall s, le s0 s = true -> below s u -> within (fun s => below_b s u) c = upto s c.
Proof.
  intros H1.
  assert (Hs : exists s0, le s1 s0 = true /\ below s0 u /\ forall x, In x c -> below (time x) u -> le (time x) s0 = true).
  { induction c as [| x c (s0 & Ha & Hb & Hc)]; [exists s1; repeat split; [apply le_refl | assumption | intros x []] |].
    destruct (below_b (time x) u) eqn:Hx.
    - exists (lub s0 (time x)). repeat split.
      + apply le_trans with s0; [assumption | apply lub_left].
      + now apply f_directed.
      + intros y [<- | Hy] Hby; [apply lub_right | apply le_trans with s0; [now apply Hc | apply lub_left]].
    - exists s0. repeat split; try assumption. intros y [<- | Hy] Hby; [unfold below in Hby; congruence | now apply Hc]. }
  destruct Hs as (s0 & Ha & Hb & Hc). exists s0. repeat split; try assumption. intros s Hle Hbs. apply within_ext. intros x Hx.
  apply eq_true_iff_eq. split; intros H.
  - apply le_trans with s0; [now apply Hc | assumption].
  - now apply (below_earlier (time x) s u).
Qed.
End Linear.

(** ** Join: each new change meets the trace of the other side, whose times are advanced *)

Section Join.
Variable pair : D -> D -> collection.
Variables left right : L.

Definition meet (a b : list change) : list change :=
  flat_map (fun x => flat_map (fun y => map (fun r => (fst r, lub (time x) (time y), snd x * (snd y * snd r)))
                                            (pair (row x) (row y))) b) a.

Lemma lub_le a b u : le (lub a b) u = (le a u && le b u)%bool.
Proof.
  apply eq_true_iff_eq. rewrite andb_true_iff. split.
  - intros H. split; [apply le_trans with (lub a b); auto | apply le_trans with (lub a b); auto].
  - intros [Ha Hb]. now apply lub_least.
Qed.

Lemma meet_upto u a b : upto u (meet a b) = product pair (upto u a) (upto u b).
Proof.
  unfold product. induction a as [| [[x s] n] a IH]; [reflexivity |].
  rewrite upto_cons. simpl. rewrite upto_app, IH. unfold time, row. simpl.
  enough (Hx : upto u (flat_map (fun y => map (fun r => (fst r, lub s (snd (fst y)), n * (snd y * snd r))) (pair x (fst (fst y)))) b)
               = if le s u then times_all D n (image (pair x) (upto u b)) else []) by (rewrite Hx; destruct (le s u); reflexivity).
  clear IH. induction b as [| [[y t] k] b IH]; [now destruct (le s u) |].
  rewrite upto_cons. simpl. rewrite upto_app, IH. clear IH. unfold upto at 1. rewrite within_map, lub_le.
  destruct (le s u), (le t u); simpl; try reflexivity. unfold times_all. now rewrite map_app, map_map.
Qed.

(** The traces of both sides, and a frontier that all that is yet to be read at each side is beyond. A trace is advanced by the
    frontier of the *other* side; both frontiers only move on. *)
Inductive joining : list act -> list change -> list change -> list T -> list T -> Prop :=
| joining_none fa fb : joining [] [] [] fa fb
| joining_act x acts a b fa fb fa' fb' :
    joining acts a b fa fb ->
    (forall c, In c (at_input left x) -> beyond fa (time c)) ->
    (forall c, In c (at_input right x) -> beyond fb (time c)) ->
    (forall u, same (upto u (sends x)) (upto u (meet (at_input left x) b ++ meet (at_input left x ++ a) (at_input right x)))) ->
    (forall q, beyond fa' q -> beyond fa q) -> (forall q, beyond fb' q -> beyond fb q) ->
    joining (x :: acts) (compact fb' (at_input left x ++ a)) (compact fa' (at_input right x ++ b)) fa' fb'.

Lemma weight_product_left g a b c : weight g (product pair (a ++ b) c) = weight g (product pair a c) + weight g (product pair b c).
Proof. now rewrite !weight_product, weight_app. Qed.

Lemma weight_product_right g a b c : weight g (product pair a (b ++ c)) = weight g (product pair a b) + weight g (product pair a c).
Proof.
  rewrite !weight_product. rewrite <- weight_plus. apply weight_ext. intros x. apply weight_app.
Qed.

Lemma seen_or_not frontier new u :
  (forall c, In c new -> beyond frontier (time c)) -> beyond frontier u \/ upto u new = [].
Proof.
  intros H. destruct (existsb (fun c => le (time c) u) new) eqn:Hsome.
  - apply existsb_exists in Hsome. destruct Hsome as (c & Hc & Hle). left. now apply beyond_later with (time c); [apply H |].
  - right. apply within_none. intros c Hc. destruct (le (time c) u) eqn:Hle; [| reflexivity].
    assert (existsb (fun c => le (time c) u) new = true) by (apply existsb_exists; eauto). congruence.
Qed.

Theorem join_law acts a b fa fb :
  joining acts a b fa fb ->
  (forall q, beyond fb q -> same (upto q a) (upto q (all_reads left acts))) /\
  (forall q, beyond fa q -> same (upto q b) (upto q (all_reads right acts))) /\
  forall u, same (upto u (all_sends acts)) (product pair (upto u (all_reads left acts)) (upto u (all_reads right acts))).
Proof.
  induction 1 as [fa fb | x acts a b fa fb fa' fb' _ (Ha & Hb & Hlaw) Hna Hnb Hsent Hfa Hfb];
    [repeat split; intros; apply same_refl |].
  unfold all_reads, all_sends in *. simpl. split; [| split].
  - intros q Hq. rewrite compact_upto, !upto_app by assumption. apply same_app; [apply same_refl | auto].
  - intros q Hq. rewrite compact_upto, !upto_app by assumption. apply same_app; [apply same_refl | auto].
  - intros u. rewrite !upto_app. apply same_trans with
      (upto u (meet (at_input left x) b ++ meet (at_input left x ++ a) (at_input right x)) ++ upto u (flat_map sends acts)).
    { apply same_app; [apply Hsent | apply same_refl]. }
    rewrite upto_app, !meet_upto, !upto_app.
    set (na := upto u (at_input left x)) in *. set (nb := upto u (at_input right x)) in *.
    set (ra := upto u (flat_map (at_input left) acts)) in *. set (rb := upto u (flat_map (at_input right) acts)) in *.
    apply same_trans with ((product pair na rb ++ product pair (na ++ ra) nb) ++ product pair ra rb).
    + apply same_app; [| apply Hlaw]. apply same_app.
      * destruct (seen_or_not fa _ u Hna) as [Hu | Hnone].
        -- apply same_product; [apply same_refl | now apply Hb].
        -- unfold na. rewrite Hnone. apply same_refl.
      * destruct (seen_or_not fb _ u Hnb) as [Hu | Hnone].
        -- apply same_product; [apply same_app; [apply same_refl | now apply Ha] | apply same_refl].
        -- unfold nb. rewrite Hnone. intros d. unfold Collections.count. rewrite !weight_product. simpl. now rewrite !weight_zero.
    + apply same_of_weight. intros g. rewrite !weight_app, !weight_product_left, !weight_product_right. lia.
Qed.
End Join.

(** ** Reduce: any function of counts, corrected at the interesting times; those that are not over are left for later *)

Section Reducing.
Variable f : (D -> Z) -> D -> Z.
Hypothesis f_counts : forall a b, (forall d, a d = b d) -> forall d, f a d = f b d.
Hypothesis f_nothing : forall d, f (fun _ => 0) d = 0.
Variable input : L.

(** The traces of input and output, the times that are left, and a frontier that all that is left or yet to be read is beyond. *)
Inductive reducing : list act -> list change -> list change -> list T -> list T -> Prop :=
| reducing_none frontier : reducing [] [] [] [] frontier
| reducing_act x acts i o pending frontier entries now later frontier' :
    reducing acts i o pending frontier ->
    (forall c, In c (at_input input x) -> beyond frontier (time c)) ->
    (forall c, In c (at_input input x ++ i ++ o) -> In (time c) entries) -> (forall p, In p pending -> In p entries) ->
    (forall t, In t now -> interesting (map time (at_input input x) ++ pending) entries t) ->
    (forall t, interesting (map time (at_input input x) ++ pending) entries t -> In t now \/ In t later) ->
    (forall c, In c (sends x) -> In (time c) now) ->
    (forall t, In t now -> forall d, count (upto t (sends x ++ o)) d = f (count (upto t (at_input input x ++ i))) d) ->
    (forall q, beyond frontier' q -> beyond frontier q) -> (forall p, In p later -> beyond frontier' p) ->
    reducing (x :: acts) (compact frontier' (at_input input x ++ i)) (compact frontier' (sends x ++ o)) later frontier'.

Lemma upto_same c entries t j :
  (forall x, In x c -> In (time x) entries) -> le j t = true ->
  (forall h, In h entries -> le h t = true -> le h j = true) -> upto t c = upto j c.
Proof.
  intros Hin Hj Hup. apply within_ext. intros x Hx. apply eq_true_iff_eq. split; intros H.
  - apply Hup; [now apply Hin | assumption].
  - now apply le_trans with j.
Qed.

Theorem reduce_law acts i o pending frontier :
  reducing acts i o pending frontier ->
  (forall q, beyond frontier q -> same (upto q i) (upto q (all_reads input acts)) /\ same (upto q o) (upto q (all_sends acts))) /\
  (forall p, In p pending -> beyond frontier p) /\
  forall u, (forall p, In p pending -> le p u = false) ->
            forall d, count (upto u (all_sends acts)) d = f (count (upto u (all_reads input acts))) d.
Proof.
  induction 1 as [frontier | x acts i o pending frontier entries now later frontier'
                  _ (Hheld & Hpend & Hlaw) Hnew Hentries Hpin Hnow Hall Hsends Hright Hfrontier Hlater].
  - split; [intros; split; apply same_refl |]. split; [intros p [] |]. intros u _ d. simpl. now rewrite f_nothing.
  - unfold all_reads, all_sends in *. simpl. set (new := at_input input x) in *.
    assert (Hmore : forall q, beyond frontier q ->
              same (upto q (new ++ i)) (upto q (new ++ flat_map (at_input input) acts)) /\
              same (upto q (sends x ++ o)) (upto q (sends x ++ flat_map sends acts))).
    { intros q Hq. destruct (Hheld q Hq). rewrite !upto_app. split; apply same_app; auto using same_refl. }
    split; [| split; [assumption |]].
    + intros q Hq. rewrite !compact_upto by assumption. apply Hmore. auto.
    + intros u Hnone d.
      assert (Hstart : forall n, In n (map time new ++ pending) -> In n entries /\ beyond frontier n).
      { intros n Hn. apply in_app_or in Hn. destruct Hn as [Hn | Hn]; [| auto].
        apply in_map_iff in Hn. destruct Hn as (c & <- & Hc). split; [apply Hentries, in_or_app; now left | now apply Hnew]. }
      destruct (existsb (fun n => le n u) (map time new ++ pending)) eqn:Hsome.
      * apply existsb_exists in Hsome. destruct Hsome as (n & Hn & Hnu). destruct (Hstart n Hn) as [Hne Hnb].
        set (j := bound T le lub n entries u).
        assert (Hju : le j u = true) by (now apply bound_below).
        assert (Hnj : le n j = true) by (apply bound_above; auto).
        assert (Hup : forall h, In h entries -> le h u = true -> le h j = true) by (intros; now apply bound_above).
        assert (Hj : In j now).
        { destruct (Hall j) as [| Hl]; [apply (bound_interesting T le lub); auto | assumption |].
          rewrite (Hnone j Hl) in Hju. discriminate. }
        assert (Hb : beyond frontier u) by now apply beyond_later with n.
        destruct (Hmore u Hb) as [Hi Ho]. specialize (Hright j Hj d).
        rewrite <- (Ho d), (f_counts _ (count (upto u (new ++ i)))) by (intros; symmetry; apply Hi).
        rewrite (upto_same (new ++ i) entries u j) by (auto; intros; apply Hentries; rewrite app_assoc; apply in_or_app; auto).
        rewrite <- Hright. rewrite !upto_app. f_equal. f_equal.
        -- apply within_ext. intros c Hc. apply eq_true_iff_eq. split; intros H; [| now apply le_trans with j].
           apply (interesting_least T le lub le_trans lub_left lub_right lub_least (map time new ++ pending) entries (time c)) with (t := u); auto.
           intros k Hk. now apply Hstart.
        -- apply upto_same with entries; auto. intros c Hc. apply Hentries. rewrite !in_app_iff. auto.
      * assert (Hno : forall n, In n (map time new ++ pending) -> le n u = false).
        { intros n Hn. destruct (le n u) eqn:H; [| reflexivity].
          assert (existsb (fun n => le n u) (map time new ++ pending) = true) by (apply existsb_exists; eauto). congruence. }
        rewrite !upto_app. replace (upto u (sends x)) with (@nil (D * Z)); [replace (upto u new) with (@nil (D * Z)) |].
        -- simpl. apply Hlaw. intros p Hp. apply Hno, in_or_app. now right.
        -- symmetry. apply within_none. intros c Hc. apply Hno, in_or_app. left. now apply in_map.
        -- symmetry. apply within_none. intros c Hc. destruct (le (time c) u) eqn:H; [| reflexivity].
           destruct (interesting_new_below T le lub le_refl le_trans lub_left _ _ _ (Hnow _ (Hsends c Hc))) as (n & Hn & Hle).
           rewrite <- (Hno n Hn). symmetry. now apply le_trans with (time c).
Qed.
End Reducing.

End Machines.
