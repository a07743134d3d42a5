"""`python -m core.bench.evaluation`: reads an `EvalRequest`, writes `Figures`, both as JSON; lm-eval uses stderr."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from core.bench.evaluation.lm_eval_tasks import TINY, EvalRequest, Figures, figures, tiny_tasks


def evaluated(wanted: EvalRequest) -> Figures:
    """Run lm-eval. Raises whatever lm-eval raises."""
    import lm_eval

    tasks: list[Any] = tiny_tasks() if wanted.task == TINY else [wanted.task]
    reported = lm_eval.simple_evaluate(
        model=_asked(wanted), tasks=tasks, limit=wanted.limit, bootstrap_iters=0, log_samples=False
    )
    return figures(reported["results"])


def _asked(wanted: EvalRequest) -> Any:
    """Both sides get the same token ids: the text without a chat template, after a BOS token."""
    if api := wanted.api:
        from lm_eval.models.openai_completions import LocalCompletionsAPI

        return LocalCompletionsAPI(
            model=api.model,
            base_url=f"{api.url}/completions",
            header={"Authorization": f"Bearer {api.key}"},
            tokenizer=wanted.directory,
            tokenizer_backend="huggingface",
            add_bos_token=True,
            num_concurrent=api.together,
            ca_cert_path=api.certificate,
        )
    from mlx_lm.evaluate import MLXLM

    from core.models.metal import obey_device

    obey_device()
    return MLXLM(wanted.directory, use_chat_template=False)


def main() -> None:
    answer = os.dup(1)
    os.dup2(2, 1)
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=EvalRequest)
    try:
        reported = evaluated(wanted)
    except Exception as error:  # tasks of other projects raise anything; print it in one line
        sys.exit(f"{type(error).__name__}: {error}")
    with os.fdopen(answer, "wb") as file:
        file.write(msgspec.json.encode(reported))


if __name__ == "__main__":
    main()
