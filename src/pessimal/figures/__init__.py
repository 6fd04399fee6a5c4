"""Figures: functions from tables to a `matplotlib.figure.Figure`.

A figure reads no file, touches no pyplot state and shows nothing; `save.save` writes it. Its tables come from
`pessimal.analysis`. Import from the modules (`from pessimal.figures.violin import violin`), one function a file.
"""
