"""Ways of changing a response along an attribute, behind one protocol (`pessimal.contrast.perturbation.Perturber`)."""
