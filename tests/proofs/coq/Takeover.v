(** Runs that overlap at one store: the line of acknowledged checkpoints is one, whatever runs claim, read, write, delete and die.

    A run is a number; its marks are a claim and its records: a fence, which is record 0, and checkpoints. Files appear whole, at
    any moment, once; a listing has each file that was there throughout. Each step below is one moment of one run, and runs take
    steps in any order; a run that dies takes none. The theorems: of two acknowledged records one builds on the other, and the
    newest acknowledged record, or a newer one that is acknowledged, is there. *)
From Coq Require Import List Arith Bool Lia.
Import ListNotations.

Definition record := (nat * nat)%type.
Definition rle (a b : record) : Prop := fst a < fst b \/ (fst a = fst b /\ snd a <= snd b).
Definition rlt (a b : record) : Prop := fst a < fst b \/ (fst a = fst b /\ snd a < snd b).

Inductive name := Claim (run : nat) | Rec (r : record).

Definition name_dec (a b : name) : {a = b} + {a <> b}.
Proof. repeat decide equality. Defined.

Definition put {X Y} (dec : forall a b : X, {a = b} + {a <> b}) (f : X -> Y) (x : X) (y : Y) : X -> Y :=
  fun z => if dec z x then y else f z.

(** What runs do, and what they are in the middle of. *)
Record state := State {
  files : name -> bool;
  claimed : nat -> bool;                                        (* at some time *)
  withdrawn : nat -> bool;
  written : list record;                                        (* at some time *)
  acknowledged : list record;
  reading : nat -> option (name -> bool);                       (* a listing that began with these files *)
  base : nat -> option (option record);                         (* what a run has read: the newest record, if there was one *)
  late : nat -> bool;                                           (* when it had read, a newer run had acknowledged something *)
  checking : nat -> option (option record * (name -> bool) * (nat -> bool));
  began : list (record * (nat -> bool));                        (* checks of a record, each with the runs that were alive then *)
  sweeping : nat -> option (name -> bool)
}.

Definition alive (st : state) (r : nat) : bool := claimed st r && negb (withdrawn st r).
Definition newer_acknowledged (st : state) (z : nat) : bool := existsb (fun a => z <? fst a) (acknowledged st).

(** A record builds on those of its run before it, and on what its run has read. *)
Inductive builds (st : state) : record -> record -> Prop :=
| builds_own r n k : n <= k -> builds st (r, k) (r, n)
| builds_base r k b a : base st r = Some (Some b) -> builds st b a -> builds st (r, k) a.

Definition ndec := Nat.eq_dec.

Inductive step (st : state) : state -> Prop :=
| claims r : claimed st r = false ->
    step st (State (put name_dec (files st) (Claim r) true) (put ndec (claimed st) r true) (withdrawn st) (written st) (acknowledged st)
               (reading st) (base st) (late st) (checking st) (began st) (sweeping st))
(** Only before its first record. *)
| withdraws r : alive st r = true -> (forall n, ~ In (r, n) (written st)) ->
    step st (State (put name_dec (files st) (Claim r) false) (claimed st) (put ndec (withdrawn st) r true) (written st) (acknowledged st)
               (reading st) (base st) (late st) (checking st) (began st) (sweeping st))
| begins_reading r : alive st r = true -> base st r = None ->
    step st (State (files st) (claimed st) (withdrawn st) (written st) (acknowledged st)
               (put ndec (reading st) r (Some (files st))) (base st) (late st) (checking st) (began st) (sweeping st))
(** It has the newest record of the listing, which has all files that were there throughout, and perhaps others. *)
| has_read r there b : alive st r = true -> base st r = None -> reading st r = Some there ->
    (forall a, there (Rec a) = true -> files st (Rec a) = true -> exists c, b = Some c /\ rle a c) ->
    (forall c, b = Some c -> In c (written st)) ->
    step st (State (files st) (claimed st) (withdrawn st) (written st) (acknowledged st)
               (reading st) (put ndec (base st) r (Some b)) (put ndec (late st) r (newer_acknowledged st r))
               (checking st) (began st) (sweeping st))
| writes r n : alive st r = true -> base st r <> None -> ~ In (r, n) (written st) ->
    step st (State (put name_dec (files st) (Rec (r, n)) true) (claimed st) (withdrawn st) ((r, n) :: written st) (acknowledged st)
               (reading st) (base st) (late st) (checking st) (began st) (sweeping st))
| begins_check r a : alive st r = true -> (forall c, a = Some c -> fst c = r /\ In c (written st)) ->
    step st (State (files st) (claimed st) (withdrawn st) (written st) (acknowledged st) (reading st) (base st) (late st)
               (put ndec (checking st) r (Some (a, files st, alive st)))
               (match a with Some c => (c, alive st) :: began st | None => began st end) (sweeping st))
(** The listing shows no newer claim; after it the run's own claim is there. *)
| has_checked r a there lived : checking st r = Some (a, there, lived) ->
    (forall x, r < x -> there (Claim x) = true -> files st (Claim x) = false) -> files st (Claim r) = true ->
    step st (State (files st) (claimed st) (withdrawn st) (written st)
               (match a with Some c => c :: acknowledged st | None => acknowledged st end)
               (reading st) (base st) (late st) (put ndec (checking st) r None) (began st) (sweeping st))
| begins_sweep r n : In (r, n) (acknowledged st) ->
    step st (State (files st) (claimed st) (withdrawn st) (written st) (acknowledged st) (reading st) (base st) (late st)
               (checking st) (began st) (put ndec (sweeping st) r (Some (files st))))
(** Claims of older runs, oldest first. *)
| sweeps_claim r there x : sweeping st r = Some there -> x < r ->
    (forall y, y < x -> there (Claim y) = true -> files st (Claim y) = false) ->
    step st (State (put name_dec (files st) (Claim x) false) (claimed st) (withdrawn st) (written st) (acknowledged st)
               (reading st) (base st) (late st) (checking st) (began st) (sweeping st))
(** Records that are older than one of its own that is acknowledged. *)
| sweeps_record r n a : In (r, n) (acknowledged st) -> rlt a (r, n) ->
    step st (State (put name_dec (files st) (Rec a) false) (claimed st) (withdrawn st) (written st) (acknowledged st)
               (reading st) (base st) (late st) (checking st) (began st) (sweeping st)).

Definition nothing : state :=
  State (fun _ => false) (fun _ => false) (fun _ => false) [] [] (fun _ => None) (fun _ => None) (fun _ => false) (fun _ => None) []
        (fun _ => None).

Inductive reachable : state -> Prop :=
| at_first : reachable nothing
| after st st' : reachable st -> step st st' -> reachable st'.

(** ** Invariants *)

Definition recorded (st : state) (r : nat) : Prop := exists n, In (r, n) (written st).

(** A check of a record that may still be acknowledged, or is: each newer run that was alive when it began has withdrawn, or can. *)
Definition open (st : state) (a : record) (lived : nat -> bool) : Prop :=
  forall x, lived x = true -> fst a < x -> withdrawn st x = true \/ ~ recorded st x.

Record invariant (st : state) : Prop := {
  inv_written : forall a, In a (written st) -> alive st (fst a) = true /\ base st (fst a) <> None;
  inv_files : forall n, files st n = true -> match n with Claim r => claimed st r = true | Rec a => In a (written st) end;
  inv_withdrawn : forall r, withdrawn st r = true -> claimed st r = true /\ forall n, ~ In (r, n) (written st);
  inv_claims : forall r, alive st r = true ->
    files st (Claim r) = true \/ exists x, r < x /\ recorded st x /\ files st (Claim x) = true;
  inv_records : forall a, In a (written st) ->
    files st (Rec a) = true \/ exists c, rlt a c /\ In c (acknowledged st) /\ files st (Rec c) = true;
  inv_began : forall a lived, In (a, lived) (began st) -> In a (written st);
  inv_acknowledged : forall a, In a (acknowledged st) ->
    In a (written st) /\ exists lived, In (a, lived) (began st) /\ forall x, lived x = true -> fst a < x -> withdrawn st x = true;
  inv_checking : forall r a there lived, checking st r = Some (a, there, lived) ->
    claimed st r = true /\
    (forall c, a = Some c -> fst c = r /\ In (c, lived) (began st)) /\
    (forall x, lived x = true -> r < x ->
       withdrawn st x = true \/ files st (Claim r) = false \/
       exists y, x <= y /\ (y = x \/ recorded st y) /\ there (Claim y) = true /\ files st (Claim y) = true);
  inv_sweeping : forall x there, sweeping st x = Some there ->
    recorded st x /\
    forall r a seen lived, checking st r = Some (a, seen, lived) -> lived x = false ->
      there (Claim r) = true \/ files st (Claim r) = false;
  inv_reading : forall z there, reading st z = Some there -> base st z = None -> alive st z = true ->
    forall a lived, In (a, lived) (began st) -> lived z = false -> files st (Rec a) = true -> there (Rec a) = true;
  inv_base : forall z b, base st z = Some b -> alive st z = true -> late st z = false ->
    forall a lived, In (a, lived) (began st) -> fst a < z -> lived z = false -> open st a lived ->
      exists c, b = Some c /\ builds st c a;
  inv_runs : forall z, reading st z <> None \/ base st z <> None -> claimed st z = true;
  inv_late : forall z, late st z = true ->
    (exists x n, z < x /\ In (x, n) (acknowledged st)) /\
    forall c lived, In (c, lived) (began st) -> fst c = z -> exists x, z < x /\ lived x = true /\ recorded st x
}.

Lemma put_same {X Y} dec (f : X -> Y) x y : put dec f x y x = y.
Proof. unfold put. destruct (dec x x); congruence. Qed.
Lemma put_other {X Y} dec (f : X -> Y) x y z : z <> x -> put dec f x y z = f z.
Proof. unfold put. intros H. destruct (dec z x); congruence. Qed.

Lemma builds_grow st st' : (forall r b, base st r = Some b -> base st' r = Some b) -> forall c a, builds st c a -> builds st' c a.
Proof. intros H c a. induction 1; [now constructor | eapply builds_base; eauto]. Qed.

Lemma invariant_nothing : invariant nothing.
Proof. split; simpl; try discriminate; intros; try contradiction; try discriminate. tauto. Qed.

Ltac puts := repeat match goal with
  | H : context [put ?d ?f ?x ?y ?z] |- _ => unfold put in H
  | |- context [put ?d ?f ?x ?y ?z] => unfold put
  | H : context [if ?c then _ else _] |- _ => destruct c; try discriminate; subst
  | |- context [if ?c then _ else _] => destruct c; try discriminate; subst
  end.

Lemma rle_trans a b c : rle a b -> rle b c -> rle a c.
Proof. unfold rle. lia. Qed.
Lemma rlt_trans a b c : rlt a b -> rlt b c -> rlt a c.
Proof. unfold rlt. lia. Qed.
Lemma rlt_rle a b : rlt a b -> rle a b.
Proof. unfold rlt, rle. lia. Qed.

Lemma alive_spec st r : alive st r = true <-> claimed st r = true /\ withdrawn st r = false.
Proof. unfold alive. rewrite andb_true_iff, negb_true_iff. tauto. Qed.

Lemma newer_spec st z : newer_acknowledged st z = true <-> exists x n, z < x /\ In (x, n) (acknowledged st).
Proof.
  unfold newer_acknowledged. rewrite existsb_exists. split.
  - intros ([x n] & Hin & H). apply Nat.ltb_lt in H. now exists x, n.
  - intros (x & n & Hlt & Hin). exists (x, n). split; [assumption | now apply Nat.ltb_lt].
Qed.

Lemma recorded_alive st r : invariant st -> recorded st r -> alive st r = true /\ withdrawn st r = false.
Proof.
  intros H (n & Hn). pose proof (inv_written st H _ Hn) as [Ha _]. split; [assumption | now apply alive_spec in Ha].
Qed.

(** The steps that leave most of the state as it is. *)
Lemma keeps_base st st' (b : option record) a :
  (forall r c, base st r = Some c -> base st' r = Some c) ->
  (exists c, b = Some c /\ builds st c a) -> exists c, b = Some c /\ builds st' c a.
Proof. intros Hb (c & -> & Hc). exists c. split; [reflexivity | now apply (builds_grow st)]. Qed.

Lemma preserved st st' : invariant st -> step st st' -> invariant st'.
Proof.
  intros H Hstep.
  destruct Hstep as [r Hnew | r Halive Hnone | r Halive Hbase | r there b Halive Hbase Hreading Hsees Hthere | r n Halive Hbase Hfresh
                     | r a Halive Hown | r a there lived Hchecking Hnewer Hown | r n Hack | r there x Hsweep Hlt Hfirst | r n a Hack Hlt].
  - (* claims *)
    split; simpl.
    + intros a Ha. destruct (inv_written st H a Ha) as [Hal Hb]. split; [| assumption]. apply alive_spec in Hal. apply alive_spec. simpl.
      split; [| tauto]. unfold put. destruct (ndec (fst a) r); [reflexivity | tauto].
    + intros n. unfold put at 1. destruct (name_dec n (Claim r)) as [-> |]; [intros _; apply put_same |].
      intros Hf. pose proof (inv_files st H n Hf) as Hn. destruct n as [q | a]; [| assumption]. unfold put. now destruct (ndec q r).
    + intros q Hq. destruct (inv_withdrawn st H q Hq) as [Hc Hn]. split; [| assumption]. unfold put. now destruct (ndec q r).
    + intros q Hq. apply alive_spec in Hq. simpl in Hq. destruct Hq as [Hc Hw]. unfold put in Hc. destruct (ndec q r) as [-> |].
      * left. apply put_same.
      * destruct (inv_claims st H q) as [Hf | (x & Hx & Hr & Hf)]; [now apply alive_spec | left | right; exists x; repeat split; try assumption].
        -- unfold put. now destruct (name_dec (Claim q) (Claim r)).
        -- unfold put. now destruct (name_dec (Claim x) (Claim r)).
    + intros a Ha. destruct (inv_records st H a Ha) as [Hf | (c & Hc & Hk & Hf)]; [left | right; exists c; repeat split; try assumption];
        now rewrite put_other by discriminate.
    + exact (inv_began st H).
    + exact (inv_acknowledged st H).
    + intros q a there lived Hc. destruct (inv_checking st H q a there lived Hc) as (Hq & Hc1 & Hc2).
      assert (Hqr : q <> r) by congruence. split; [| split; [assumption |]].
      * unfold put. now destruct (ndec q r).
      * intros x Hx Hl. destruct (Hc2 x Hx Hl) as [Hw | [Hf | (y & Hy & Hyr & Ht & Hf)]]; [tauto | right; left | right; right; exists y; repeat split; try assumption].
        -- rewrite put_other; congruence.
        -- unfold put. now destruct (name_dec (Claim y) (Claim r)).
    + intros x there Hs. destruct (inv_sweeping st H x there Hs) as (Hr & Hc). split; [assumption |]. intros q a seen lived Hq Hl.
      destruct (Hc q a seen lived Hq Hl) as [| Hf]; [tauto | right]. destruct (inv_checking st H q a seen lived Hq) as [Hq' _].
      rewrite put_other; [assumption |]. intros Heq. injection Heq as ->. congruence.
    + intros z there Hz Hb Hal a lived Ha Hl Hf. rewrite put_other in Hf by discriminate.
      assert (Hzr : z <> r) by (intros ->; rewrite (inv_runs st H r) in Hnew; [discriminate | left; congruence]).
      apply (inv_reading st H z there Hz Hb) with lived; try assumption. apply alive_spec in Hal. simpl in Hal.
      rewrite put_other in Hal by assumption. now apply alive_spec.
    + intros z b Hz Hal Hlate a lived Ha Hlt Hl Hopen. apply (keeps_base st); [tauto |].
      assert (Hzr : z <> r) by (intros ->; rewrite (inv_runs st H r) in Hnew; [discriminate | right; congruence]).
      apply (inv_base st H z b Hz) with lived; try assumption. apply alive_spec in Hal. simpl in Hal.
      rewrite put_other in Hal by assumption. now apply alive_spec.
    + intros z Hz. unfold put. destruct (ndec z r); [reflexivity | now apply (inv_runs st H)].
    + exact (inv_late st H).
  - (* withdraws *)
    assert (Hfile : forall q, recorded st q -> q <> r) by (intros q (n & Hn) ->; now apply (Hnone n)).
    split; simpl.
    + intros a Ha. destruct (inv_written st H a Ha) as [Hal Hb]. split; [| assumption]. apply alive_spec in Hal. apply alive_spec. simpl.
      rewrite put_other; [tauto |]. apply Hfile. exists (snd a). now destruct a.
    + intros n. unfold put. destruct (name_dec n (Claim r)); [discriminate |]. exact (inv_files st H n).
    + intros q. unfold put. destruct (ndec q r) as [-> |]; [| apply (inv_withdrawn st H)].
      intros _. apply alive_spec in Halive. tauto.
    + intros q Hq. apply alive_spec in Hq. simpl in Hq. destruct Hq as [Hc Hw]. unfold put in Hw. destruct (ndec q r) as [-> | Hqr]; [discriminate |].
      destruct (inv_claims st H q) as [Hf | (x & Hx & Hr & Hf)]; [now apply alive_spec | left | right; exists x; repeat split; try assumption];
        rewrite put_other; try assumption; [congruence |]. intros Heq. injection Heq as ->. now apply (Hfile r).
    + intros a Ha. destruct (inv_records st H a Ha) as [Hf | (c & Hc & Hk & Hf)]; [left | right; exists c; repeat split; try assumption];
        now rewrite put_other by discriminate.
    + exact (inv_began st H).
    + intros a Ha. destruct (inv_acknowledged st H a Ha) as (Hw & lived & Hb & Hall). split; [assumption |]. exists lived. split; [assumption |].
      intros x Hx Hl. unfold put. destruct (ndec x r); [reflexivity | now apply Hall].
    + intros q a there lived Hc. destruct (inv_checking st H q a there lived Hc) as (Hq & Hc1 & Hc2). split; [assumption |]. split; [assumption |].
      intros x Hx Hl. unfold put at 1. destruct (ndec x r) as [-> | Hxr]; [now left |].
      destruct (Hc2 x Hx Hl) as [Hw | [Hf | (y & Hy & Hyr & Ht & Hf)]]; [now left | right; left | right; right; exists y; repeat split; try assumption].
      * unfold put. now destruct (name_dec (Claim q) (Claim r)).
      * rewrite put_other; [assumption |]. intros Heq. injection Heq as ->. destruct Hyr as [-> | Hyr]; [congruence | now apply (Hfile r)].
    + intros x there Hs. destruct (inv_sweeping st H x there Hs) as (Hr & Hc). split; [assumption |]. intros q a seen lived Hq Hl.
      destruct (Hc q a seen lived Hq Hl) as [| Hf]; [tauto | right]. unfold put. now destruct (name_dec (Claim q) (Claim r)).
    + intros z there Hz Hb Hal a lived Ha Hl Hf. rewrite put_other in Hf by discriminate.
      apply (inv_reading st H z there Hz Hb) with lived; try assumption. apply alive_spec in Hal. simpl in Hal. apply alive_spec.
      unfold put in Hal. destruct (ndec z r); intuition discriminate.
    + intros z b Hz Hal Hlate a lived Ha Hlt Hl Hopen. apply (keeps_base st); [tauto |].
      apply (inv_base st H z b Hz) with lived; try assumption.
      * apply alive_spec in Hal. simpl in Hal. apply alive_spec. unfold put in Hal. destruct (ndec z r); intuition discriminate.
      * intros x Hx Hl'. destruct (Hopen x Hx Hl') as [Hw | Hw]; [| now right]. simpl in Hw. unfold put in Hw.
        destruct (ndec x r) as [-> |]; [right; intros (n & Hn); now apply (Hnone n) | now left].
    + exact (inv_runs st H).
    + exact (inv_late st H).
  - (* begins_reading *)
    split; simpl; try exact (inv_written st H); try exact (inv_files st H); try exact (inv_withdrawn st H); try exact (inv_claims st H);
      try exact (inv_records st H); try exact (inv_began st H); try exact (inv_acknowledged st H); try exact (inv_checking st H);
      try exact (inv_sweeping st H); try exact (inv_late st H).
    + intros z there Hz Hb Hal a lived Ha Hl Hf. unfold put in Hz. destruct (ndec z r) as [-> |].
      * now injection Hz as <-.
      * now apply (inv_reading st H z there Hz Hb Hal a lived).
    + intros z b Hz Hal Hlate a lived Ha Hlt Hl Hopen. apply (keeps_base st); [tauto |]. now apply (inv_base st H z b Hz Hal Hlate a lived).
    + intros z Hz. destruct (ndec z r) as [-> | Hzr]; [apply alive_spec in Halive; tauto |]. rewrite put_other in Hz by assumption.
      now apply (inv_runs st H).
  - (* has_read *)
    assert (Hmono : forall q c, base st q = Some c -> put ndec (base st) r (Some b) q = Some c).
    { intros q c Hq. unfold put. destruct (ndec q r); [congruence | assumption]. }
    assert (Hmine : forall n, ~ In (r, n) (written st)).
    { intros n Hn. destruct (inv_written st H _ Hn) as [_ Hb]. now apply Hb. }
    split; simpl.
    + intros a Ha. destruct (inv_written st H a Ha) as [Hal Hb]. split; [assumption |]. unfold put. now destruct (ndec (fst a) r).
    + exact (inv_files st H).
    + exact (inv_withdrawn st H).
    + exact (inv_claims st H).
    + exact (inv_records st H).
    + exact (inv_began st H).
    + exact (inv_acknowledged st H).
    + exact (inv_checking st H).
    + exact (inv_sweeping st H).
    + intros z seen Hz Hb Hal a lived Ha Hl Hf. unfold put in Hb. destruct (ndec z r); [discriminate |].
      now apply (inv_reading st H z seen Hz Hb Hal a lived).
    + intros z c Hz Hal Hlate a lived Ha Hlt Hl Hopen. destruct (ndec z r) as [-> | Hzr].
      2:{ rewrite put_other in Hz by assumption. rewrite put_other in Hlate by assumption. apply (keeps_base st); [exact Hmono |]. now apply (inv_base st H z c Hz Hal Hlate a lived). }
      rewrite put_same in Hz. rewrite put_same in Hlate. injection Hz as <-.
      assert (Hnot : forall x n, In (x, n) (acknowledged st) -> x < r).
      { intros x n Hx. destruct (lt_eq_lt_dec x r) as [[| ->] | Hgt]; [assumption | |].
        - destruct (inv_acknowledged st H _ Hx) as [Hw _]. now apply Hmine in Hw.
        - assert (newer_acknowledged st r = true) by (apply newer_spec; eauto). congruence. }
      (* what began to be checked before this run had claimed is at or before what it has read *)
      assert (Hsaw : forall k seen, In (k, seen) (began st) -> seen r = false -> exists d, b = Some d /\ rle k d).
      { intros k seen Hk Hs. destruct (inv_records st H k (inv_began st H k seen Hk)) as [Hf | (d & Hd & Hack & Hf)].
        - apply Hsees; [| assumption]. now apply (inv_reading st H r there Hreading Hbase Halive k seen).
        - destruct (inv_acknowledged st H d Hack) as (_ & seen' & Hd' & Hall).
          destruct (Hsees d) as (e & He & Hle); [| assumption | exists e; split; [assumption | apply rle_trans with d; [now apply rlt_rle | assumption]]].
          apply (inv_reading st H r there Hreading Hbase Halive d seen' Hd'); [| assumption].
          destruct (seen' r) eqn:Hr'; [exfalso | reflexivity]. destruct d as [x n]. pose proof (Hnot x n Hack) as Hx.
          rewrite alive_spec in Halive. rewrite (Hall r Hr' Hx) in Halive. destruct Halive. discriminate. }
      destruct (Hsaw a lived Ha Hl) as ([y j] & -> & Hle). exists (y, j). split; [reflexivity |].
      assert (Hyj : In (y, j) (written st)) by now apply Hthere.
      apply (builds_grow st); [exact Hmono |].
      destruct a as [x n]. destruct Hle as [Hxy | [Hxy Hnj]]; simpl in *; [| subst y; now constructor].
      destruct (inv_written st H _ Hyj) as [Hyal Hyb]. simpl in Hyb, Hyal.
      destruct (base st y) as [by_ |] eqn:Hbase_y; [| congruence].
      destruct (late st y) eqn:Hylate.
      * (* then there is something newer to be read *)
        exfalso. destruct (inv_late st H y Hylate) as [(q & m & Hyq & Hq) _].
        destruct (inv_acknowledged st H _ Hq) as (_ & seen' & Hq' & Hall).
        destruct (Hsaw (q, m) seen' Hq') as (d & Hd & Hqd).
        -- destruct (seen' r) eqn:Hr'; [exfalso | reflexivity]. pose proof (Hnot q m Hq) as Hqr.
           rewrite alive_spec in Halive. rewrite (Hall r Hr' Hqr) in Halive. destruct Halive. discriminate.
        -- injection Hd as <-. unfold rle in Hqd. simpl in Hqd. lia.
      * destruct (inv_base st H y by_ Hbase_y Hyal Hylate (x, n) lived Ha) as (d & -> & Hd); [simpl; lia | | exact Hopen |].
        -- destruct (lived y) eqn:Hly; [exfalso | reflexivity]. destruct (Hopen y Hly Hxy) as [Hw | Hw].
           ++ simpl in Hw. rewrite alive_spec in Hyal. destruct Hyal. congruence.
           ++ apply Hw. now exists j.
        -- now apply builds_base with d.
    + intros z Hz. apply (inv_runs st H). destruct Hz as [| Hz]; [tauto |]. unfold put in Hz. destruct (ndec z r) as [-> |]; [left; congruence | tauto].
    + intros z Hz. unfold put in Hz. destruct (ndec z r) as [-> |]; [| now apply (inv_late st H)].
      split; [now apply newer_spec |]. intros [q n] lived Hc Hq. simpl in Hq. subst q. exfalso. apply (Hmine n). now apply (inv_began st H) with lived.
  - (* writes *)
    assert (Hrec : forall q, recorded st q -> exists m, (r, n) = (q, m) \/ In (q, m) (written st)) by (intros q (m & Hm); exists m; now right).
    assert (Hclaim : forall q, put name_dec (files st) (Rec (r, n)) true (Claim q) = files st (Claim q)) by (intros; now apply put_other).
    assert (Hrecs : forall a, files st (Rec a) = true -> put name_dec (files st) (Rec (r, n)) true (Rec a) = true).
    { intros a Ha. unfold put. now destruct (name_dec (Rec a) (Rec (r, n))). }
    split; simpl.
    + intros a [<- | Ha]; [split; assumption | now apply (inv_written st H)].
    + intros q. unfold put. destruct (name_dec q (Rec (r, n))) as [-> |]; [intros _; now left |].
      intros Hf. pose proof (inv_files st H q Hf) as Hq. destruct q; [assumption | now right].
    + intros q Hq. destruct (inv_withdrawn st H q Hq) as [Hc Hn]. split; [assumption |]. intros m [Heq | Hm]; [| now apply (Hn m)].
      injection Heq as -> _. apply alive_spec in Halive. destruct Halive. congruence.
    + intros q Hq. rewrite Hclaim. destruct (inv_claims st H q Hq) as [| (x & Hx & Hr & Hf)]; [tauto | right].
      exists x. rewrite Hclaim. split; [assumption | split; [now apply Hrec | assumption]].
    + intros a [<- | Ha]; [left; apply put_same |]. destruct (inv_records st H a Ha) as [Hf | (c & Hc & Hk & Hf)]; [left; auto | right; exists c; auto].
    + intros a lived Ha. right. now apply (inv_began st H) with lived.
    + intros a Ha. destruct (inv_acknowledged st H a Ha) as (Hw & Hb). auto.
    + intros q a there lived Hc. destruct (inv_checking st H q a there lived Hc) as (Hq & Hc1 & Hc2). split; [assumption |]. split; [assumption |].
      intros x Hx Hl. rewrite Hclaim. destruct (Hc2 x Hx Hl) as [Hw | [Hf | (y & Hy & Hyr & Ht & Hf)]]; [tauto | tauto |].
      right. right. exists y. rewrite Hclaim. split; [assumption | split; [| auto]]. destruct Hyr; [now left | right; now apply Hrec].
    + intros x there Hs. destruct (inv_sweeping st H x there Hs) as (Hr & Hc). split; [now apply Hrec |]. intros q a seen lived Hq Hl.
      rewrite Hclaim. now apply (Hc q a seen lived).
    + intros z there Hz Hb Hal a lived Ha Hl Hf. apply (inv_reading st H z there Hz Hb Hal a lived Ha Hl).
      unfold put in Hf. destruct (name_dec (Rec a) (Rec (r, n))) as [Heq |]; [| assumption]. injection Heq as ->.
      exfalso. apply Hfresh. now apply (inv_began st H) with lived.
    + intros z b Hz Hal Hlate a lived Ha Hlt Hl Hopen. apply (keeps_base st); [tauto |].
      apply (inv_base st H z b Hz Hal Hlate a lived Ha Hlt Hl). intros x Hx Hl'. destruct (Hopen x Hx Hl') as [| Hw]; [tauto | right].
      intros Hr. now apply Hw, Hrec.
    + exact (inv_runs st H).
    + intros z Hz. destruct (inv_late st H z Hz) as [Hx Hc]. split; [assumption |]. intros c lived Hb Hcz.
      destruct (Hc c lived Hb Hcz) as (x & Hx1 & Hx2 & Hx3). exists x. split; [assumption | split; [assumption | now apply Hrec]].
  - (* begins_check *)
    assert (Hfewer : forall c lived, In (c, lived) (match a with Some c => (c, alive st) :: began st | None => began st end) ->
                       (a = Some c /\ lived = alive st) \/ In (c, lived) (began st)).
    { intros c lived Hc. destruct a as [d |]; [destruct Hc as [Heq | Hc]; [injection Heq as <- <-; auto | auto] | auto]. }
    assert (Hmore : forall c, In c (began st) -> In c (match a with Some c => (c, alive st) :: began st | None => began st end)).
    { intros c Hc. destruct a; [now right | assumption]. }
    split; simpl; try exact (inv_written st H); try exact (inv_files st H); try exact (inv_withdrawn st H); try exact (inv_claims st H);
      try exact (inv_records st H); try exact (inv_runs st H).
    + intros c lived Hc. destruct (Hfewer c lived Hc) as [[-> _] | Hc']; [now apply Hown | now apply (inv_began st H) with lived].
    + intros c Hc. destruct (inv_acknowledged st H c Hc) as (Hw & lived & Hb & Hall). split; [assumption |]. exists lived. auto.
    + intros q d there lived Hc. unfold put in Hc. destruct (ndec q r) as [-> | Hqr].
      * injection Hc as <- <- <-. split; [apply alive_spec in Halive; tauto |]. split.
        -- intros c ->. split; [now apply Hown | now left].
        -- intros x Hx Hl. right. right. destruct (inv_claims st H x Hx) as [Hf | (y & Hy & Hr & Hf)]; [exists x | exists y]; intuition lia.
      * destruct (inv_checking st H q d there lived Hc) as (Hq & Hc1 & Hc2). split; [assumption |]. split; [| assumption].
        intros c Hd. destruct (Hc1 c Hd) as [Hfst Hin]. auto.
    + intros x there Hs. destruct (inv_sweeping st H x there Hs) as (Hr & Hc). split; [assumption |]. intros q d seen lived Hq Hl.
      unfold put in Hq. destruct (ndec q r) as [-> | Hqr]; [| now apply (Hc q d seen lived)].
      injection Hq as <- <- <-. destruct (recorded_alive st x H Hr). congruence.
    + intros z there Hz Hb Hal c lived Hc Hl Hf. destruct (Hfewer c lived Hc) as [[_ ->] | Hc']; [change (alive st z = true) in Hal; congruence |].
      now apply (inv_reading st H z there Hz Hb Hal c lived).
    + intros z b Hz Hal Hlate c lived Hc Hlt Hl Hopen. apply (keeps_base st); [tauto |].
      destruct (Hfewer c lived Hc) as [[_ ->] | Hc']; [change (alive st z = true) in Hal; congruence |].
      now apply (inv_base st H z b Hz Hal Hlate c lived).
    + intros z Hz. destruct (inv_late st H z Hz) as [(x & n & Hx & Hack) Hall]. split; [eauto |]. intros c lived Hc Hcz.
      destruct (Hfewer c lived Hc) as [[_ ->] | Hc']; [| now apply (Hall c lived)].
      assert (Hr : recorded st x) by (exists n; now apply (inv_acknowledged st H)).
      exists x. split; [assumption |]. split; [now apply recorded_alive | assumption].
  - (* has_checked *)
    destruct (inv_checking st H r a there lived Hchecking) as (Hclaimed & Hrecord & Hseen).
    assert (Hgone : forall x, lived x = true -> r < x -> withdrawn st x = true).
    { intros x Hx Hlt. destruct (Hseen x Hx Hlt) as [| [Hf | (y & Hy & _ & Ht & Hf)]]; [assumption | congruence |].
      rewrite (Hnewer y) in Hf; [discriminate | lia | assumption]. }
    assert (Hmore : forall c, In c (acknowledged st) -> In c (match a with Some c => c :: acknowledged st | None => acknowledged st end)).
    { intros c Hc. destruct a; [now right | assumption]. }
    assert (Hchecks : forall q d seen l, put ndec (checking st) r None q = Some (d, seen, l) -> checking st q = Some (d, seen, l)).
    { intros q d seen l Hq. unfold put in Hq. destruct (ndec q r); [discriminate | assumption]. }
    split; simpl; try exact (inv_written st H); try exact (inv_files st H); try exact (inv_withdrawn st H); try exact (inv_claims st H);
      try exact (inv_began st H); try exact (inv_runs st H).
    + intros c Hc. destruct (inv_records st H c Hc) as [| (d & Hd & Hk & Hf)]; [tauto | right; exists d; auto].
    + intros c Hc. assert (Hc' : a = Some c \/ In c (acknowledged st)) by (destruct a; [destruct Hc as [-> |]; auto | auto]).
      destruct Hc' as [-> | Hc']; [| now apply (inv_acknowledged st H)].
      destruct (Hrecord c eq_refl) as [Hfst Hin]. split; [now apply (inv_began st H) with lived |]. exists lived. split; [assumption |].
      rewrite Hfst. exact Hgone.
    + intros q d seen l Hq. now apply (inv_checking st H q d seen l), Hchecks.
    + intros x seen Hs. destruct (inv_sweeping st H x seen Hs) as (Hr & Hc). split; [assumption |]. intros q d sn l Hq.
      now apply (Hc q d sn l), Hchecks.
    + intros z seen Hz Hb Hal. now apply (inv_reading st H z seen Hz Hb Hal).
    + intros z b Hz Hal Hlate c l Hc Hlt Hl Hopen. apply (keeps_base st); [tauto |]. now apply (inv_base st H z b Hz Hal Hlate c l).
    + intros z Hz. destruct (inv_late st H z Hz) as [(x & n & Hx & Hack) Hall]. split; [exists x, n; auto | assumption].
  - (* begins_sweep *)
    split; simpl; try exact (inv_written st H); try exact (inv_files st H); try exact (inv_withdrawn st H); try exact (inv_claims st H);
      try exact (inv_records st H); try exact (inv_began st H); try exact (inv_acknowledged st H); try exact (inv_checking st H);
      try exact (inv_reading st H); try exact (inv_runs st H); try exact (inv_late st H).
    + intros x there Hs. unfold put in Hs. destruct (ndec x r) as [-> |]; [| now apply (inv_sweeping st H)].
      injection Hs as <-. split; [exists n; now apply (inv_acknowledged st H) |]. intros q a seen lived _ _.
      destruct (files st (Claim q)); auto.
    + intros z b Hz Hal Hlate c l Hc Hlt Hl Hopen. apply (keeps_base st); [tauto |]. now apply (inv_base st H z b Hz Hal Hlate c l).
  - (* sweeps_claim *)
    destruct (inv_sweeping st H r there Hsweep) as [Hr Hswept]. destruct (recorded_alive st r H Hr) as [Hral Hrw].
    assert (Hrecs : forall a, put name_dec (files st) (Claim x) false (Rec a) = files st (Rec a)) by (intros; now apply put_other).
    split; simpl; try exact (inv_written st H); try exact (inv_withdrawn st H); try exact (inv_began st H); try exact (inv_acknowledged st H);
      try exact (inv_runs st H); try exact (inv_late st H).
    + intros n. unfold put. destruct (name_dec n (Claim x)); [discriminate | apply (inv_files st H)].
    + intros q Hq. destruct (Nat.eq_dec q x) as [-> | Hqx].
      * right. destruct (inv_claims st H r Hral) as [Hf | (y & Hy & Hyr & Hf)]; [exists r | exists y];
          (split; [lia | split; [assumption |]]); rewrite put_other; try assumption; intros Heq; injection Heq; lia.
      * destruct (inv_claims st H q Hq) as [Hf | (y & Hy & Hyr & Hf)]; [left; rewrite put_other; congruence | right].
        destruct (Nat.eq_dec y x) as [-> | Hyx]; [| exists y; rewrite put_other; [auto | congruence]].
        destruct (inv_claims st H r Hral) as [Hf' | (w & Hw & Hwr & Hf')]; [exists r | exists w];
          (split; [lia | split; [assumption |]]); rewrite put_other; try assumption; intros Heq; injection Heq; lia.
    + intros a Ha. rewrite Hrecs. destruct (inv_records st H a Ha) as [| (c & Hc & Hk & Hf)]; [tauto | right; exists c; now rewrite Hrecs].
    + intros q a seen lived Hc. destruct (inv_checking st H q a seen lived Hc) as (Hq & Hc1 & Hc2). split; [assumption |]. split; [assumption |].
      intros w Hw Hl. unfold put at 1. destruct (name_dec (Claim q) (Claim x)) as [| Hqx]; [tauto |].
      destruct (Hc2 w Hw Hl) as [| [| (y & Hy & Hyr & Ht & Hf)]]; [tauto | tauto |].
      destruct (Nat.eq_dec y x) as [-> | Hyx]; [| right; right; exists y; rewrite put_other; [auto | congruence]].
      destruct (lived r) eqn:Hlr.
      * destruct (Hc2 r Hlr) as [| [| (v & Hv & Hvr & Htv & Hfv)]]; [lia | congruence | tauto |].
        right. right. exists v. repeat split; [lia | right; destruct Hvr as [-> |]; assumption | assumption |].
        rewrite put_other; [assumption |]. intros Heq. injection Heq. lia.
      * right. left. destruct (Hswept q a seen lived Hc Hlr) as [Ht' |]; [| assumption]. apply Hfirst; [lia | assumption].
    + intros y seen Hs. destruct (inv_sweeping st H y seen Hs) as (Hy & Hc). split; [assumption |]. intros q a sn lived Hq Hl.
      destruct (Hc q a sn lived Hq Hl) as [| Hf]; [tauto | right]. unfold put. now destruct (name_dec (Claim q) (Claim x)).
    + intros z seen Hz Hb Hal a lived Ha Hl Hf. rewrite Hrecs in Hf. now apply (inv_reading st H z seen Hz Hb Hal a lived).
    + intros z b Hz Hal Hlate c l Hc Hlt' Hl Hopen. apply (keeps_base st); [tauto |]. now apply (inv_base st H z b Hz Hal Hlate c l).
  - (* sweeps_record *)
    assert (Hclaim : forall q, put name_dec (files st) (Rec a) false (Claim q) = files st (Claim q)) by (intros; now apply put_other).
    split; simpl; try exact (inv_written st H); try exact (inv_withdrawn st H); try exact (inv_began st H); try exact (inv_acknowledged st H);
      try exact (inv_runs st H); try exact (inv_late st H).
    + intros q. unfold put. destruct (name_dec q (Rec a)); [discriminate | apply (inv_files st H)].
    + intros q Hq. rewrite Hclaim. destruct (inv_claims st H q Hq) as [| (y & Hy & Hyr & Hf)]; [tauto | right; exists y; now rewrite Hclaim].
    + (* an acknowledged record behind it is there *)
      assert (Hbehind : forall c, rle c a -> exists d, rlt c d /\ In d (acknowledged st) /\ put name_dec (files st) (Rec a) false (Rec d) = true).
      { intros c Hc. destruct (inv_records st H (r, n)) as [Hf | (d & Hd & Hk & Hf)]; [now apply (inv_acknowledged st H) | exists (r, n) | exists d].
        - split; [unfold rlt, rle in *; lia |]. split; [assumption |]. rewrite put_other; [assumption |]. intros Heq. injection Heq as <-. unfold rlt in Hlt. simpl in Hlt. lia.
        - split; [unfold rlt, rle in *; lia |]. split; [assumption |]. rewrite put_other; [assumption |]. intros Heq. injection Heq as ->. unfold rlt in *. simpl in *. lia. }
      intros c Hc. destruct (inv_records st H c Hc) as [Hf | (d & Hd & Hk & Hf)].
      * destruct (name_dec (Rec c) (Rec a)) as [Heq | Hne]; [injection Heq as ->; right; apply Hbehind; right; lia | left; now rewrite put_other].
      * right. destruct (name_dec (Rec d) (Rec a)) as [Heq | Hne]; [| exists d; now rewrite put_other].
        injection Heq as ->. apply Hbehind. now apply rlt_rle.
    + intros q c seen lived Hc. destruct (inv_checking st H q c seen lived Hc) as (Hq & Hc1 & Hc2). split; [assumption |]. split; [assumption |].
      intros x Hx Hl. rewrite Hclaim. destruct (Hc2 x Hx Hl) as [| [| (y & Hy & Hyr & Ht & Hf)]]; [tauto | tauto |].
      right. right. exists y. rewrite Hclaim. auto.
    + intros y seen Hs. destruct (inv_sweeping st H y seen Hs) as (Hy & Hc). split; [assumption |]. intros q c sn lived Hq Hl.
      rewrite Hclaim. now apply (Hc q c sn lived).
    + intros z seen Hz Hb Hal c lived Hc Hl Hf. apply (inv_reading st H z seen Hz Hb Hal c lived); try assumption.
      unfold put in Hf. destruct (name_dec (Rec c) (Rec a)); [discriminate | assumption].
    + intros z b Hz Hal Hlate c l Hc Hlt' Hl Hopen. apply (keeps_base st); [tauto |]. now apply (inv_base st H z b Hz Hal Hlate c l).
Qed.

Lemma reachable_invariant st : reachable st -> invariant st.
Proof. induction 1; [apply invariant_nothing | eapply preserved; eassumption]. Qed.

(** ** The theorems *)

(** One line: of two acknowledged records the newer one builds on the older one. *)
Theorem one_line st a c : reachable st -> In a (acknowledged st) -> In c (acknowledged st) -> rle a c -> builds st c a.
Proof.
  intros Hst Ha Hc Hle. pose proof (reachable_invariant st Hst) as H. destruct a as [x n], c as [y k].
  destruct Hle as [Hlt | [Heq Hnk]]; simpl in *; [| subst y; now constructor].
  destruct (inv_acknowledged st H _ Hc) as (Hcw & seen & Hcb & Hcall). destruct (inv_acknowledged st H _ Ha) as (_ & lived & Hab & Haall).
  destruct (inv_written st H _ Hcw) as [Hal Hb]. simpl in *. destruct (base st y) as [b |] eqn:Hbase; [| congruence].
  destruct (late st y) eqn:Hlate.
  - exfalso. destruct (inv_late st H y Hlate) as [_ Hall]. destruct (Hall (y, k) seen Hcb eq_refl) as (z & Hz & Hl & Hr).
    destruct (recorded_alive st z H Hr) as [_ Hw]. rewrite (Hcall z Hl Hz) in Hw. discriminate.
  - destruct (inv_base st H y b Hbase Hal Hlate (x, n) lived Hab Hlt) as (d & -> & Hd).
    + destruct (lived y) eqn:Hly; [| reflexivity]. rewrite alive_spec in Hal. rewrite (Haall y Hly Hlt) in Hal. destruct Hal. discriminate.
    + intros z Hz Hxz. left. now apply Haall.
    + now apply builds_base with d.
Qed.

(** Durable: an acknowledged record is there, or a newer one is that is acknowledged and builds on it. *)
Theorem durable st a :
  reachable st -> In a (acknowledged st) ->
  files st (Rec a) = true \/ exists c, In c (acknowledged st) /\ files st (Rec c) = true /\ builds st c a.
Proof.
  intros Hst Ha. pose proof (reachable_invariant st Hst) as H.
  destruct (inv_records st H a) as [| (c & Hlt & Hc & Hf)]; [now apply (inv_acknowledged st H) | now left |].
  right. exists c. repeat split; try assumption. apply one_line; auto. now apply rlt_rle.
Qed.

(** So a run whose fence is acknowledged, which is when it begins its work, begins from all that older runs have acknowledged. *)
Theorem nothing_is_lost st r a :
  reachable st -> In (r, 0) (acknowledged st) -> In a (acknowledged st) -> fst a < r -> builds st (r, 0) a.
Proof. intros Hst Hr Ha Hlt. apply one_line; auto. now left. Qed.

(** The rules do not forbid everything: run 0 acknowledges a checkpoint, and run 1 takes over from it. *)
Theorem runs_take_over : exists st, reachable st /\ acknowledged st = [(1, 0); (0, 1); (0, 0)] /\ base st 1 = Some (Some (0, 1)).
Proof.
  assert (H := at_first).
  Ltac takes c := match goal with H : reachable _ |- _ => eapply after in H; [| c]; cbn in H end.
  takes ltac:(apply (claims _ 0); reflexivity).
  takes ltac:(apply (begins_reading _ 0); reflexivity).
  takes ltac:(eapply (has_read _ 0 _ None); try reflexivity; cbn; discriminate).
  takes ltac:(apply (writes _ 0 0); [reflexivity | discriminate | cbn; tauto]).
  takes ltac:(apply (begins_check _ 0 (Some (0, 0))); [reflexivity | intros c Hc; injection Hc as <-; cbn; auto]).
  takes ltac:(eapply (has_checked _ 0); [reflexivity | intros x Hx; cbn; unfold put; cbn; destruct x; [lia | discriminate] | reflexivity]).
  takes ltac:(apply (writes _ 0 1); [reflexivity | discriminate | cbn; intros [Hc | []]; discriminate]).
  takes ltac:(apply (begins_check _ 0 (Some (0, 1))); [reflexivity | intros c Hc; injection Hc as <-; cbn; auto]).
  takes ltac:(eapply (has_checked _ 0); [reflexivity | intros x Hx; cbn; unfold put; cbn; destruct x; [lia | discriminate] | reflexivity]).
  takes ltac:(apply (claims _ 1); reflexivity).
  takes ltac:(apply (begins_reading _ 1); reflexivity).
  takes ltac:(eapply (has_read _ 1 _ (Some (0, 1))); try reflexivity; [intros [x n] _ Hf; exists (0, 1); split; [reflexivity |] | intros c Hc; injection Hc as <-; cbn; auto];
              revert Hf; cbn; unfold put; cbn; unfold rle; cbn; destruct x as [| x]; [destruct n as [| [| n]]; [lia | lia | discriminate] | discriminate]).
  takes ltac:(apply (writes _ 1 0); [reflexivity | discriminate | cbn; intros [Hc | [Hc | []]]; discriminate]).
  takes ltac:(apply (begins_check _ 1 (Some (1, 0))); [reflexivity | intros c Hc; injection Hc as <-; cbn; auto]).
  takes ltac:(eapply (has_checked _ 1); [reflexivity | intros x Hx; cbn; unfold put; cbn; destruct x as [| [| x]]; [lia | lia | discriminate] | reflexivity]).
  eexists. split; [exact H | split; reflexivity].
Qed.
