"""Scoring candidates with a reward model: exactly, fast, and so that it can be killed and go on."""
