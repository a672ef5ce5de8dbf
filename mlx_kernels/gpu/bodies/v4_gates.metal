// Functions of one value: sigmoid, SwiGLU, the affinity of an expert.

inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp(-x)); }

inline float swiglu_of(float gate, float up, float limit) {
  gate = gate > limit ? limit : gate; // not min and max: they would hide a NaN
  up = up > limit ? limit : (up < -limit ? -limit : up);
  return gate * sigmoid_of(gate) * up;
}

// log(1 + e) for e > 0 without losing small e (Kahan): the error of 1 + e divides out.
inline float log_of_one_plus(float e) {
  float u = 1.0f + e;
  return u == 1.0f ? e : log(u) * e / (u - 1.0f);
}

// sqrt(softplus(z)); above 20 softplus is z to float32.
inline float affinity_of(float z) { return sqrt(z > 20.0f ? z : log_of_one_plus(exp(z))); }
