"""The results of runs: the registry (the truth, on disk) and its mirror in Weights &
Biases."""
