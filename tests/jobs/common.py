"""What every job here takes: which rank goes wrong and at which step. Nothing here knows of ranktop."""

import argparse


def arguments(*faults):
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=faults, default=faults[0])
    parser.add_argument("--rank", type=int, required=True, help="the rank that goes wrong")
    parser.add_argument("--step", type=int, required=True, help="the step at which it does")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pace", type=float, default=0.1, help="seconds of computing in a step")
    return parser.parse_args()
