"""The verbs as Python functions on objects in memory, a file each; `import pessimal` offers them
without importing torch.

Nothing is written but where `save` and `train` say: no registry, no W&B, no configuration files of
one's own. Defaults are those of the command line.
"""

from pessimal.notebook import show_in_notebooks

show_in_notebooks()
