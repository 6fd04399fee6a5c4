"""Training reward models on people's own preferences, from a language model, and watching any
training's rewards.

`preference_model` trains from a table of preferences to a checkpoint's folder: `preferences` reads
the data, `answers` scores items, `bradley_terry` has the loss, `fit` the loop. `callback` watches
this or anybody's training.
"""
