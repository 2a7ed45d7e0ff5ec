"""A model in stages: each stage holds some of the layers and their part of the memory, in its own process or machine.

A pass goes through the stages one after the other. Unchanged f32 values cross from one to the next: the residual stream
of every token, and rows that layers leave to later ones (cuts.py, also for where a model cannot be cut). So results
have the same bits as on one machine.

leader   has the file, the texts and all bookkeeping: which pages and rows of states a sequence has, forks, going back,
         the prompt cache (memory.py). To Runner and Sequence it is an Engine (staged_engine.py)
stage    keeps values in pages and rows that the leader numbers, and obeys orders one after the other (stage.py,
         orders.py)
line     carries orders to the stages, and rows from one stage to the next (line.py: in this process)
files    every stage also keeps its part of the prompt cache in files (staged_cache.py: the leader's side;
         stage_files.py)

A pass counts as done when it is ordered. The leader then orders the next one, so that all stages have work: pieces of a
prompt, or groups of answers (`Runner.begin`). When a stage dies, its replacement loads the files, and the tokens after
the last checkpoint are read again (staged_runner.py).
"""
