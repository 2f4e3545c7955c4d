"""Questions about speed, each with its answer on the machine at hand.

`python -m benchmarks` asks all of them. A question is a module in `questions`: its docstring is the
question, `measure` answers it against a real node and counts only acknowledged work. Every answer
stands beside D, the rate at which the disk alone does 4 KiB fdatasyncs, measured right before and
after. `results` keeps answers with machine, commit and date.
"""
