"""A judgement put into words: verdict, evidence, explanation, graph, the contract's JSON."""
