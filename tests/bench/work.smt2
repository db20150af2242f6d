; Work for the whole-process benchmark: the factors of a number, by its bits.
(set-logic ALL)
(declare-const a (_ BitVec 33))
(declare-const b (_ BitVec 33))
(assert (= (bvmul a b) (_ bv3607821503 33)))
(assert (bvult a (_ bv92681 33)))
(assert (bvult b a))
(assert (bvugt b (_ bv1 33)))
(check-sat)
