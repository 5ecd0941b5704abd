"""The crash kit: two services on files, processes that are killed for real, and a judge that reads what is left.

`shop` is the software under test, `jobs` what a process does with it, `failpoint` where it dies, `nursery` how it is
born quickly, `world` the files of one run, `report` the verdict, `tally` the sum of all verdicts.
"""
