"""A classifier that somebody else trained, whose every reward can be written down: the words of
alt-profanity-check, a mean of five calibrated linear classifiers on tf-idf, as answers and behind
real answers. Installed where the package index can be reached; needs nothing but its two files."""

import importlib.metadata
import subprocess
import sys

import numpy as np
import pytest

import pessimal
from pessimal.conversation import Context, Turn

PACKAGE = "alt-profanity-check==1.9.1"
PROMPT = "What do you think of it?"
ANSWERS = (
    "I love this little house.",
    "They are idiots.",
    "The train leaves at noon, from the second platform.",
    "Nobody knows what the damn thing is for.",
    "Thanks.",
    "It is cold and wet and I hate it, hate it, hate it.",
    "Water boils at a hundred degrees.",
    "My stupid neighbour sold the garden.",
)


@pytest.fixture(scope="module")
def profanity(tmp_path_factory):
    """The package's function, its vectoriser and its model."""
    if importlib.metadata.version("scikit-learn") != "1.9.1":
        pytest.skip("the package's model is of scikit-learn 1.9.1")
    folder = tmp_path_factory.mktemp("profanity")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
    if subprocess.run([*command, PACKAGE], capture_output=True, timeout=120).returncode:
        pytest.skip(f"{PACKAGE} cannot be installed here")
    sys.path.insert(0, str(folder))
    try:
        from profanity_check import predict_prob, profanity_check

        yield predict_prob, profanity_check.vectorizer, profanity_check.model
    finally:
        sys.path.remove(str(folder))


def mean_of_classifiers(profanity, products: np.ndarray) -> np.ndarray:
    """Probabilities (n,) of the five classifiers' products (n, 5) of weights and features."""
    classifiers = profanity[2].calibrated_classifiers_
    each = []
    for column, one in enumerate(classifiers):
        [calibrator] = one.calibrators
        decision = products[:, column] + one.estimator.intercept_[0]
        each.append(1 / (1 + np.exp(calibrator.a_ * decision + calibrator.b_)))
    return np.mean(each, axis=0)


def weights(profanity) -> np.ndarray:
    """The classifiers' weights of each word (words, 5)."""
    return np.stack(
        [one.estimator.coef_[0] for one in profanity[2].calibrated_classifiers_], axis=1
    )


@pytest.mark.slow
def test_every_word_has_the_reward_of_the_closed_form(profanity):
    predict, vectorizer, _ = profanity
    words = sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.get)

    def profane(responses):
        return predict(list(responses))

    table = pessimal.scan(profane, PROMPT, candidates=words, progress=False)
    # One word is a vector of length 1, whatever its idf.
    right = mean_of_classifiers(profanity, weights(profanity))
    assert len(table.rewards) == 15_442
    assert np.abs(table.rewards - right).max() < 1e-12
    assert (np.argsort(table.rewards, kind="stable") == np.argsort(right, kind="stable")).all()

    idf, coefficients = vectorizer.idf_, weights(profanity)
    contexts = {
        f"answer-{number}": Context((Turn("user", PROMPT), Turn("assistant", answer)), 1, at)
        for number, answer in enumerate(ANSWERS)
        for at in [len(answer)]
    }
    tables = pessimal.scan(
        profane, contexts=contexts, candidates=[f" {word}" for word in words], progress=False
    )
    for answer, table in zip(ANSWERS, tables, strict=True):
        counts = np.zeros(len(words))
        for token in vectorizer.build_analyzer()(answer):
            if token in vectorizer.vocabulary_:
                counts[vectorizer.vocabulary_[token]] += 1
        products = (counts * idf) @ coefficients + idf[:, None] * coefficients
        length = np.sqrt(((counts * idf) ** 2).sum() + (2 * counts + 1) * idf**2)
        right = mean_of_classifiers(profanity, products / length[:, None])
        assert np.abs(table.rewards - right).max() < 1e-12
