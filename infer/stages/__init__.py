"""A model in stages: each holds some of the layers, with their part of the memory, in a process or machine of its own.

A pass goes through the stages one after the other. What crosses from one to the next are f32 values as they are in
memory: the residual stream of every token, and what layers leave to later ones (cuts.py says what, and where a model
cannot be cut). So the results have the bits of one machine.

leader   has the file, the texts and all bookkeeping: which pages and rows of states a sequence has, forks, going back,
         the prompt cache (memory.py). To Runner and Sequence it is an Engine (engine.py)
stage    keeps values in pages and rows that the leader numbers, and does what it is told, in order (stage.py,
         orders.py)
line     how orders get to stages and rows from one stage to the next (line.py: in this process)
kept     what the prompt cache holds is kept by every stage in files as well (keeping.py: the leader's side; kept.py)

A pass counts as done when it is ordered: the leader goes on to the next one, and all stages have something to do:
pieces of a prompt, or groups of the answers that are drawn together (`Runner.begin`). What is lost with a stage is its
memory. The texts are with the leader: who comes in its place finds what was kept, and what came behind that is read
again (runner.py).
"""
