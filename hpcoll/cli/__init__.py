"""The command line: one module a command, imported when it is used."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from hpcoll.errors import HpcollError, ScheduleError
from hpcoll.version import __version__

COMMANDS = ("list", "show", "compare", "verify", "bench", "plot", "env")

STATUS_FAILED = 1
STATUS_BAD_INPUT = 2
STATUS_INTERRUPTED = 130
STATUS_BROKEN_PIPE = 141


class _Commands(click.Group):
    """Finds commands by module name, and turns errors into one line and a status."""

    debug = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        # Not list(...): once imported, hpcoll.cli.list hides the built-in here.
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"hpcoll.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            value = super().invoke(ctx)
            sys.stdout.flush()
            return value
        except BrokenPipeError:
            # Caught here because click's own handling ends with status 1, which
            # would read as a failed proof.
            _drop_output()
            raise click.exceptions.Exit(STATUS_BROKEN_PIPE) from None

    def main(self, *args: Any, **extra: Any) -> Any:
        self.debug = False
        extra["standalone_mode"] = False
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        try:
            value = super().main(*args, **extra)
        except click.Abort:
            sys.exit(STATUS_INTERRUPTED)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "hpcoll"
            self._fail(error, f"{error.format_message()} (see '{path} --help')", STATUS_BAD_INPUT)
        except click.ClickException as error:
            self._fail(error, error.format_message(), STATUS_BAD_INPUT)
        except ScheduleError as error:
            self._fail(error, str(error), STATUS_FAILED)
        except (HpcollError, OSError) as error:
            self._fail(error, str(error), STATUS_BAD_INPUT)
        sys.exit(value if isinstance(value, int) else 0)

    def _fail(self, error: Exception, text: str, status: int) -> None:
        if self.debug:
            traceback.print_exception(error)
        with contextlib.suppress(BrokenPipeError):
            click.echo(f"hpcoll: error: {' '.join(text.split(chr(10))).strip()}", err=True)
        sys.exit(status)


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter ends silently."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"hpcoll {__version__}")
        ctx.exit()


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: hpcoll verify allreduce --ranks 1-32",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version and end.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Write, prove, run and measure collective algorithms on MPI.

    Exit status: 0 all right, 1 a proof failed or elements were wrong, 2 bad input,
    130 interrupted.
    """
    if isinstance(ctx.command, _Commands):
        ctx.command.debug = debug
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(STATUS_BAD_INPUT)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; ends the process with its exit status."""
    cli.main(args=None if argv is None else [*argv], prog_name="hpcoll")
