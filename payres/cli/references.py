"""References: the operator's own names for what was done, under which it is done once."""

from functools import partial

import click

reference_option = partial(
    click.option, "--reference", metavar="TEXT", help="Your own name for it: what has it already is not done again."
)
