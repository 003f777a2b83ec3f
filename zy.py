import sys; sys.argv=[sys.argv[0],"0","1"]+sys.argv[1:]
import zz, random
from dataclasses import replace
from zz import *
seed=int(sys.argv[3])
s=of_seed(seed); c=random.Random(f"x{seed}")
m=Move(c.choice(KINDS) if False else c.choice(["set","set-and-back","sleep"]), c.choice((0.,2.5,c.uniform(0,s.conditions.duration_s))), c.choice((3.,10.,1e6)), c.choice(("q","r","f","t","c","l","qrf","rf")), c.choice((("client",),("server",),("client","server"))), c.choice((1.,.3,.1,.02)), c.choice((10*US,50*US,150*US,300*US,MS,10*MS,300*MS,SECOND)))
moves=(m,)+(s.moves if c.random()<.3 else ())
print(s.conditions); print(moves)
p=replace(s,moves=moves).play()
print(p.faults[:5])
print(p._set_ns, p.server.generation, p.server_clock._sets)
for w in p.samples[-12:]:
    print(w.sample.kind, w.sample.generation, w.sample.sequence, w.sample.verdict, w.sample.reason, w.sample.lower_ns, w.sample.upper_ns, w.sample.readings)
