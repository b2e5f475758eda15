"""One run of a Pulumi program, in the program's own interpreter: connect, execute, say how it failed.

The language host starts this file by its path. It needs nothing but the `pulumi` package, and exits with 32 when the
engine has already been told what went wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import runpy
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pulumi
from pulumi import runtime
from pulumi.runtime.stack import run_in_stack

BAIL = 32


def main(argv: list[str]) -> int:
    """Run the program named by `argv` and return the process's exit status."""
    arguments = _parse(argv)
    program = Path(arguments.program)
    sys.path[0] = str(program if program.is_dir() else program.parent)
    sys.argv = [str(program), *arguments.rest]
    runtime.set_all_config(runtime.get_config_env(), runtime.get_config_secret_keys_env())
    runtime.configure(
        runtime.Settings(
            project=arguments.project,
            stack=arguments.stack,
            monitor=arguments.monitor,
            engine=arguments.engine,
            parallel=arguments.parallel,
            dry_run=arguments.dry_run == "true",
            organization=arguments.organization,
            root_directory=arguments.root_directory,
        )
    )
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # a failed registration is reported once, below
    try:
        asyncio.run(_run(program, arguments.parallel))
    except Exception as error:  # noqa: BLE001 - whatever a program raises is to be shown, not handled
        if _engine_is_gone(error):
            return BAIL  # and it has said why: this would only be a second, misleading message
        return _bail(str(error) if isinstance(error, pulumi.RunError) else _unhandled(error, program))
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("monitor", "engine", "project", "root-directory", "stack", "organization", "dry-run"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("program")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


async def _run(program: Path, parallel: int) -> None:
    # A registration holds a thread until the engine answers; too few would serialise what the engine may do at once.
    threads = min(4 * max(parallel, 1), 512)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=threads))

    def execute() -> None:
        runpy.run_path(str(program), run_name="__main__")

    await run_in_stack(execute)


def _engine_is_gone(error: BaseException | None) -> bool:
    """Whether `error` goes back to a call that the engine, on its way out, no longer took."""
    while error is not None:
        if isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.UNAVAILABLE:
            return True
        error = error.__cause__ or error.__context__
    return False


def _unhandled(error: BaseException, program: Path) -> str:
    """The traceback from the program's first own frame on; the frames above it are this file and the SDK."""
    own = str(program)
    frames = error.__traceback__
    while frames is not None and not frames.tb_frame.f_code.co_filename.startswith(own):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    return f"Program failed with an unhandled exception:\n{text}"


def _bail(message: str) -> int:
    with contextlib.suppress(grpc.RpcError):
        pulumi.log.error(message)
    return BAIL


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a thread that still waits for an engine that has gone would hold the process.
    os._exit(status)
