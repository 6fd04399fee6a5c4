"""What a reward is: kinds, a file each; loading, chat frames, heads."""
