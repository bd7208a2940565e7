"""Operations of docs/ops.md that are not compared, each with its reason."""
RANDOM = "its numbers are drawn from a generator of its own"
NOT_IN_PYTORCH = "PyTorch has no such function"

WITHOUT = {
    "accuracy": NOT_IN_PYTORCH,
    "top_k_accuracy": NOT_IN_PYTORCH,
    "categorical_cross_entropy": NOT_IN_PYTORCH,
    "hinge_loss": NOT_IN_PYTORCH,
    "pairwise_rank_loss": NOT_IN_PYTORCH,
    "scan": NOT_IN_PYTORCH,
    "sparsemax": NOT_IN_PYTORCH,
    "truncated_logits": NOT_IN_PYTORCH,
    "alpha_dropout": RANDOM,
    "bernoulli": RANDOM,
    "categorical": RANDOM,
    "dropout": RANDOM,
    "exponential_like": RANDOM,
    "feature_alpha_dropout": RANDOM,
    "gamma": RANDOM,
    "gumbel_softmax": RANDOM,
    "multinomial": RANDOM,
    "normal": RANDOM,
    "poisson": RANDOM,
    "rand_like": RANDOM,
    "randint_like": RANDOM,
    "randn_like": RANDOM,
    "rrelu": RANDOM,
    "sample_logits": RANDOM,
    "truncated_normal_like": RANDOM,
    "uniform": RANDOM,
}
