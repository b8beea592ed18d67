"""SmolLM2-135M-Instruct as a Hugging Face folder in bfloat16, from pdctl's built-in GGUF file.

    python benchmarks/gpu/convert_model.py SmolLM2-135M-Instruct.Q4_1.gguf FOLDER

Needs torch, transformers and gguf; no network. Released SGLang serves such a folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    source, name = str(options.gguf.parent), options.gguf.name
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.bfloat16)
    model.save_pretrained(options.folder)
    AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(options.folder)
    print(f"{sum(each.numel() for each in model.parameters()):,} parameters in {options.folder}")


if __name__ == "__main__":
    main()
