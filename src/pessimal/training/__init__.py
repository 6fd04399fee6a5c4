"""Training reward models: on people's own preferences, from a real language model; and watching any
training's rewards.

`bradley_terry` has the loss, `preferences` the data, `answers` how items are scored, `fit` the
training, `callback` what watches this or anybody's training.
"""
