(** Compaction: to advance times by a frontier preserves every accumulation at and after the frontier.

    A trace is a list of changes of counts: what changed, when, by how much. Its accumulation at a time adds up all changes at or
    before that time. Compaction moves each change to the latest time that nobody at or after the frontier can tell from its own,
    so that changes which differed in their times cancel or add up. *)
From Coq Require Import List ZArith Lia Bool.
Import ListNotations.
Open Scope Z_scope.

Section Compaction.

(** Times with bounds, as in [timely.progress.Lattice]. *)
Variable T : Type.
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

(** The greatest lower bound of the bounds of a time with each element of the frontier. *)
Definition advance (t : T) (frontier : list T) : T :=
  match frontier with
  | [] => t
  | f :: rest => fold_left (fun found g => glb found (lub t g)) rest (lub t f)
  end.

(** At or after the frontier. *)
Definition beyond (frontier : list T) (q : T) : Prop := exists f, In f frontier /\ le f q = true.

Lemma fold_lower (t : T) rest start q :
  le start q = true \/ (exists g, In g rest /\ le (lub t g) q = true) ->
  le (fold_left (fun found g => glb found (lub t g)) rest start) q = true.
Proof.
  revert start. induction rest as [| g rest IH]; intros start; simpl.
  - intros [H | (g & [] & _)]. assumption.
  - intros [H | (x & [-> | Hx] & Hle)]; apply IH.
    + left. now apply le_trans with start.
    + left. now apply le_trans with (lub t x).
    + right. exists x. auto.
Qed.

Lemma fold_upper (t : T) rest start c :
  le c start = true -> (forall g, In g rest -> le c (lub t g) = true) ->
  le c (fold_left (fun found g => glb found (lub t g)) rest start) = true.
Proof.
  revert start. induction rest as [| g rest IH]; intros start H Hall; simpl; [assumption |].
  apply IH; [apply glb_greatest; [assumption | apply Hall; now left] | intros; apply Hall; now right].
Qed.

Lemma advance_later t frontier : le t (advance t frontier) = true.
Proof.
  destruct frontier as [| f rest]; simpl; [apply le_refl |].
  apply fold_upper; [apply lub_left | intros; apply lub_left].
Qed.

(** Nobody at or after the frontier can tell the advanced time from the time itself. *)
Theorem advance_indistinguishable t frontier q :
  beyond frontier q -> le (advance t frontier) q = le t q.
Proof.
  intros (f & Hf & Hle). apply eq_true_iff_eq. split; intros H.
  - apply le_trans with (advance t frontier); [apply advance_later | assumption].
  - destruct frontier as [| g rest]; [destruct Hf |]. simpl. apply fold_lower.
    destruct Hf as [-> | Hf]; [left; now apply lub_least | right; exists f; split; [assumption | now apply lub_least]].
Qed.

(** No later time would do: compaction forgets all that may be forgotten. *)
Theorem advance_latest t frontier c :
  frontier <> [] -> (forall q, beyond frontier q -> le t q = true -> le c q = true) -> le c (advance t frontier) = true.
Proof.
  intros Hne H. destruct frontier as [| f rest]; [congruence |]. simpl. apply fold_upper.
  - apply H; [exists f; split; [now left | apply lub_right] | apply lub_left].
  - intros g Hg. apply H; [exists g; split; [now right | apply lub_right] | apply lub_left].
Qed.

(** Two times that nobody at or after the frontier can tell apart become one. *)
Theorem advance_merges t u frontier :
  frontier <> [] -> (forall q, beyond frontier q -> le t q = le u q) -> advance t frontier = advance u frontier.
Proof.
  intros Hne H. apply le_antisym; apply advance_latest; try assumption; intros q Hq Hle.
  - rewrite advance_indistinguishable by assumption. now rewrite H.
  - rewrite advance_indistinguishable by assumption. now rewrite <- H.
Qed.

Theorem advance_twice t frontier : advance (advance t frontier) frontier = advance t frontier.
Proof.
  destruct frontier as [| f rest]; [reflexivity |].
  apply advance_merges; [congruence |]. intros q Hq. now apply advance_indistinguishable.
Qed.

(** ** Traces *)

Variable D : Type.
Variable eqb : D -> D -> bool.

Definition change := (D * T * Z)%type.

Fixpoint accumulate (trace : list change) (t : T) (d : D) : Z :=
  match trace with
  | [] => 0
  | (x, s, diff) :: rest => (if eqb x d && le s t then diff else 0) + accumulate rest t d
  end.

Definition compact (frontier : list T) (trace : list change) : list change :=
  map (fun c => match c with (x, s, diff) => (x, advance s frontier, diff) end) trace.

(** Compaction preserves what is accumulated at and after the frontier. *)
Theorem compaction trace frontier t d :
  beyond frontier t -> accumulate (compact frontier trace) t d = accumulate trace t d.
Proof.
  intros H. induction trace as [| [[x s] diff] rest IH]; simpl; [reflexivity |].
  now rewrite advance_indistinguishable, IH.
Qed.

(** So does compaction in rounds, each by a later frontier than the last. *)
Theorem compaction_in_rounds trace first second t d :
  (forall q, beyond second q -> beyond first q) -> beyond second t ->
  accumulate (compact second (compact first trace)) t d = accumulate trace t d.
Proof. intros H Hs. rewrite compaction by assumption. apply compaction. auto. Qed.

(** A trace and its compaction stay equal, whatever is appended to both. *)
Theorem compaction_append trace more frontier t d :
  beyond frontier t -> accumulate (compact frontier trace ++ more) t d = accumulate (trace ++ more) t d.
Proof.
  intros H. assert (app : forall a b, accumulate (a ++ b) t d = accumulate a t d + accumulate b t d).
  { induction a as [| [[x s] diff] rest IH]; intros b; simpl; [reflexivity | rewrite IH; lia]. }
  rewrite !app. now rewrite compaction.
Qed.

End Compaction.
