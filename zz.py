import sys; sys.path.insert(0,'tests/adversary'); sys.path.insert(0,'.')
import random, logging, multiprocessing, collections
logging.disable(logging.CRITICAL)
import scenarios
from scenarios import of_seed, Scenario
from attacks import Move
from dataclasses import replace
from virtual_time import US, MS, SECOND
KINDS=sys.argv[3].split(",") if len(sys.argv)>3 else ["set","set-and-back","sleep"]
def one(seed):
    s=of_seed(seed); c=random.Random(f"x{seed}")
    m=Move(c.choice(KINDS), c.choice((0.,2.5,c.uniform(0,s.conditions.duration_s))), c.choice((3.,10.,1e6)), c.choice(("q","r","f","t","c","l","qrf","rf")), c.choice((("client",),("server",),("client","server"))), c.choice((1.,.3,.1,.02)), c.choice((10*US,50*US,150*US,300*US,MS,10*MS,300*MS,SECOND)))
    moves=(m,)+(s.moves if c.random()<.3 else ())
    s=replace(s,moves=moves)
    try: p=s.play()
    except Exception as e:
        import traceback; return seed, traceback.format_exc()[-700:], m
    return seed, p.faults[0] if p.faults else "", m
if __name__=="__main__":
    a,b=int(sys.argv[1]),int(sys.argv[2])
    with multiprocessing.Pool(2) as pool:
        bad=[r for r in pool.imap_unordered(one,range(a,b),20) if r[1]]
    for r in sorted(bad)[:12]: print(r)
    print(len(bad), collections.Counter(r[2].kind for r in bad))
