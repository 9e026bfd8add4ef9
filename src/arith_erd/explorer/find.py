"""*Find the algorithm*: a page that hides one of six networks. Ten interventions must tell how it adds.

The operands have four bits: a table of all 256 pairs fills the hidden units of one feed-forward layer.
"""

import base64
import json
from functools import partial

import numpy as np

from ..interp.algorithms import algorithm_label, describe_program
from ..interp.hooked import Hooked
from ..models import Transformer
from ..models.handcoded.compiler import compile_program
from ..models.handcoded.programs import erd, lookahead_carry, prefix_carry, remainder, table
from ..models.network import initialise
from ..tasks import Add
from . import Page, export_network, write_page

TASK = Add(bits=4)
PROGRAMS = {program.__name__: program for program in (erd, remainder, prefix_carry, lookahead_carry, table)}
KINDS = {name: algorithm_label(name) or name for name in PROGRAMS} | {"untrained": "nothing"}


def find_page(seed: int = 0, docs: str = "", notes: dict[str, str] | None = None) -> Page:
    """Write the page, with a network for each name in `KINDS`, all of the same architecture and size.

    ``seed`` draws the networks and their order, ``docs`` is the address of the documentation, and ``notes`` are
    sentences by name that the page shows with the answer. Answers are encoded, but not encrypted.
    """
    rng = np.random.default_rng(seed)
    networks = []
    for name in rng.permutation([*KINDS]).tolist():
        if program := PROGRAMS.get(name):
            network = compile_program(program(rng), rng, TASK.bits).network
        else:
            make = partial(Transformer, TASK.prompt_length, TASK.width)
            network = initialise(make, seed).eval().half().float()  # the page holds it in half the space
        says = describe_program(program) if program else "Has its initial weights."
        answer = {"name": name, "kind": KINDS[name], "says": says, "note": (notes or {}).get(name, "")}
        exported = export_network(Hooked(network, task=TASK, name="hidden"))
        del exported["right"], exported["weight_bits"]  # they would give the answer away
        networks.append(exported | {"answer": base64.b64encode(json.dumps(answer).encode()).decode()})
    return write_page(networks, docs)
