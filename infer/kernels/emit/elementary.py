"""Elementary functions in f32: the same operations, and so the same bits, on every target."""

import math

from .core import I32, EmitterCore, Value, Vec, const

LOG2E = 1.4426950408889634


class ElementaryFunctions(EmitterCore):
    """Functions of f32 lanes."""

    def at_least(self, x: Value, low: float) -> Value:
        """max(x, low); NaN stays NaN. One instruction on x86, unlike llvm.maxnum."""
        bound = const(x.type, low)
        return self.b.select(self.b.fcmp_ordered("<", x, bound), bound, x)

    def at_most(self, x: Value, high: float) -> Value:
        """min(x, high); NaN stays NaN."""
        bound = const(x.type, high)
        return self.b.select(self.b.fcmp_ordered(">", x, bound), bound, x)

    def exp2(self, t: Value) -> Value:
        """2^t for f32 lanes, t <= 127; at and below -125.5 the result is near 2^-126. Within 1.1 ulp; NaN stays NaN.

        Cody-Waite reduction to |f| <= 1/2 and a polynomial of degree 6, the same operations on every target.
        """
        b, ty = self.b, t.type
        n = ty.count
        t = self.at_least(t, -126.0)
        r = self.intr("rint", t)
        f = b.fsub(t, r)
        p = const(ty, 1.535336188e-4)
        for k in (1.339887440e-3, 9.618437357e-3, 5.550332471e-2, 2.402264791e-1, 6.931472028e-1, 1.0):
            p = self.fma(p, f, const(ty, k))
        # p is in [0.7, 1.42] and the result normal: adding r to the exponent multiplies by 2^r exactly
        exponent = b.shl(b.fptosi(r, Vec(I32, n)), const(Vec(I32, n), 23))
        return b.bitcast(b.add(b.bitcast(p, Vec(I32, n)), exponent), ty)

    def exp_nonpositive(self, x: Value) -> Value:
        """exp(x) for x <= 0."""
        return self.exp2(self.b.fmul(x, const(x.type, LOG2E)))

    def sigmoid_times(self, x: Value) -> Value:
        """SiLU: x * sigmoid(x) = x / (1 + exp(-x)). NaN stays NaN."""
        b, ty = self.b, x.type
        t = self.at_most(b.fmul(x, const(ty, -LOG2E)), 126.0)
        return b.fdiv(x, b.fadd(const(ty, 1.0), self.exp2(t)))

    def softplus(self, x: Value) -> Value:
        """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)); log1p(u) = 2 artanh(u / (2 + u)) by its series."""
        b, ty = self.b, x.type
        u = self.exp_nonpositive(b.fneg(self.intr("fabs", x)))
        s = b.fdiv(u, b.fadd(u, const(ty, 2.0)))
        s2 = b.fmul(s, s)
        p = const(ty, 2.0 / 17)
        for k in (15, 13, 11, 9, 7, 5, 3, 1):
            p = self.fma(p, s2, const(ty, 2.0 / k))
        return self.fma(p, s, self.intr("maxnum", x, const(ty, 0.0)))

    def tanh(self, x: Value) -> Value:
        """Hyperbolic tangent of f32 lanes, within 1.8 ulp; NaN stays NaN.

        |x| < 0.55: x + x^3 p(x^2), p the minimax fit of (tanh(x) / x - 1) / x^2; else 1 - 2 / (exp(2 |x|) + 1).
        """
        b, ty = self.b, x.type
        size = self.intr("fabs", x)
        s = b.fmul(x, x)
        p = const(ty, -6.282619201e-3)
        for k in (2.107788436e-2, -5.385389552e-2, 1.333260238e-1, -3.333331943e-1):
            p = self.fma(p, s, const(ty, k))
        small = self.fma(b.fmul(p, s), x, x)
        power = self.exp2(b.fmul(self.at_most(size, 10.0), const(ty, 2 * LOG2E)))
        large = b.fsub(const(ty, 1.0), b.fdiv(const(ty, 2.0), b.fadd(power, const(ty, 1.0))))
        # with the sign of x, even of -0
        return self.intr("copysign", b.select(b.fcmp_ordered("<", size, const(ty, 0.55)), small, large), x)

    def gelu(self, x: Value) -> Value:
        """x Phi(x), Phi the normal distribution, for f32 lanes: relative error 6e-7 for |x| < 4, 4e-7 of max(1, |x|)
        elsewhere; NaN stays NaN. Hendrycks & Gimpel 2016, arXiv:1606.08415.

        Phi(-|x|) = erfc(y) / 2 with y = |x| / sqrt(2), and erfc(y) = exp(-y^2) t p(t) with t = 1 / (1 + 0.4 y), p the
        fit with minimax relative error, 1.0e-8.
        """
        b, ty = self.b, x.type
        one = const(ty, 1.0)
        t = b.fdiv(one, self.fma(self.intr("fabs", x), const(ty, 0.4 * math.sqrt(0.5)), one))
        p = const(ty, -2.774840919e-2)
        for k in (1.880333835e-1, -4.754656945e-1, 5.164877741e-1, -2.588046453e-1, 2.584546407e-1, 1.343418733e-1,
                  2.139305977e-1, 2.250695428e-1, 2.257009471e-1):  # fmt: skip
            p = self.fma(p, t, const(ty, k))
        power = self.exp2(b.fmul(b.fmul(x, x), const(ty, -LOG2E / 2)))
        tail = b.fmul(b.fmul(p, t), b.fmul(power, const(ty, 0.5)))
        return b.fmul(x, b.select(b.fcmp_ordered("<", x, const(ty, 0.0)), tail, b.fsub(one, tail)))
