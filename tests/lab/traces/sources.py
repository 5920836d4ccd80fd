"""Sources of the importers, as small as they can be."""

import json
from random import Random

from fairhit_lab.traces.importers import FORMATS


def imported(name, *paths, seed=0, **settings):
    return list(FORMATS[name].rows([str(path) for path in paths], Random(seed), **settings))


def written(path, *lines):
    """The file with these lines; what is no text is JSON."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


VTC = "t_s,client,input_tokens,output_tokens"

PUBLISHED = "TIMESTAMP,ContextTokens,GeneratedTokens"

BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"

MOON = {"timestamp": 3000, "input_length": 600, "output_length": 50, "hash_ids": [0, 7]}

SESSION = {
    "session": "s1",
    "block_size": 64,
    "requests": [
        [0, 0.0, 200, 10, 1, 0, 0, [[1, 3]]],
        [1, 50.0, 70, 5, 1, 0, 0, [[20, 1]]],
        [0, 20.0, 300, 10, 1, 0, 3, [[4, 1]]],
    ],
}

ARRIVALS = "model,client,t_s,rate_per_s,cv,pattern,shape,scale"
LENGTHS = "model,client,t_s,field,mean,q01,q05,q10,q25,q50,q75,q90,q95,q99"


def servegen_files(folder, *arrivals):
    lengths = [
        f"m,{client},0,{field},50,10,20,30,40,50,60,70,80,90"
        for client in (1, 2)
        for field in ("input_tokens", "output_tokens")
    ]
    return written(folder / "arrivals.csv", ARRIVALS, *arrivals), written(
        folder / "lengths.csv", LENGTHS, *lengths
    )
