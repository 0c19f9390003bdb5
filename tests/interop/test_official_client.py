import json, urllib.request, itertools, pytest
n=itertools.count()
class E: pass
@pytest.fixture
def env(base_url, payres, run_story, tmp_path):
    e=E()
    k=next(n)
    def w(name, *a):
        e.__dict__[name]=payres("wallet","create",f"{name}{k}",*a)["walletAddress"]; return e.__dict__[name]
    w("alice","--asset","USD","--scale","2","--name","Alice","--password","pw-alice")
    w("bob","--asset","USD","--scale","2")
    w("carol","--asset","GBP","--scale","2"); w("dave","--asset","EUR","--scale","2")
    payres("fee","set","GBP","2","--fixed","0.10","--basis-points","50")
    payres("rate","set","GBP","EUR","1.17"); payres("liquidity","deposit","EUR","2","1000.00"); 
    payres("wallet","deposit",e.alice,"20.00"); payres("wallet","deposit",e.carol,"100.00")
    apps={}
    for app in "app","other":
      w(app,"--asset","USD","--scale","2","--name","The App")
      pem=str(tmp_path/f"{app}.pem")
      payres("key","generate",e.__dict__[app],"--out",pem,"--kid",app+"-key")
      apps[app]={"walletAddress":e.__dict__[app],"privateKey":pem,"kid":app+"-key"}
    def decide(url,word="approve"):
        r=payres("grant",word,url)
        if r["redirect"]: urllib.request.urlopen(r["redirect"]).read()
    def run(story, word="approve"):
      steps=run_story(story,{"alice":e.alice,"bob":e.bob,"carol":e.carol,"dave":e.dave,**apps},lambda u: decide(u,word))
      for k,v in steps.items(): print(k, json.dumps(v)[:1500])
      return steps
    return run
@pytest.mark.parametrize("s",["direct_payment","denied_grant","grants","directed_identity","refusals"])
def test_x(s,env):
    env(s,"deny" if s.startswith("denied") else "approve")
    assert 0
