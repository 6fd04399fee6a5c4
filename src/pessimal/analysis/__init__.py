"""Analyses: functions from tables to tables.

An analysis reads no file, logs nothing and knows nothing of models, tokenizers or prompts: its tables come
from `pessimal.tables`, its results go to `pessimal.figures` and `pessimal.report`. Import from the modules
(`from pessimal.analysis.agreement import agreement`): several are named after their one function.

Two shapes recur:

* **rewards**: a DataFrame for one prompt; index = item (text), one float column per model, none missing.
* **descriptors**: a DataFrame indexed by model with base, developer (str), parameters (count), rank (float).
"""
