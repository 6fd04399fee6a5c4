"""Ways of changing a response along an attribute, behind one protocol (`pessimal.explain.perturbation.Perturber`)."""
