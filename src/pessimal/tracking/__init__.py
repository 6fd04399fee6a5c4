"""What a run leaves behind: the registry (the truth, on disk) and its mirror in Weights &
Biases."""
