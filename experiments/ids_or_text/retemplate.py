"""A demo sibling under a chat template that trims, with a tokenizer that doubles the beginning
token.

Run from the repository root: `python experiments/ids_or_text/retemplate.py CHECKPOINT FOLDER`.
Weights and vocabulary stay as they are. The sibling's own template prints a response as it stands
and its tokenizer adds nothing, so on it the three modes nearly agree; here they part for the
reasons they part on Llama 3 and Gemma.
"""

import shutil
import sys
from pathlib import Path

from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer


def main(checkpoint: Path, folder: Path) -> None:
    shutil.copytree(checkpoint, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    begin = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, tokenizer.bos_token_id)]
    )
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "message['content']", "message['content'] | trim"
    )
    tokenizer.save_pretrained(folder)
    print(folder)


main(*map(Path, sys.argv[1:]))
