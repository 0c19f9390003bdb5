const f=document.forms.passkey,P=self.PublicKeyCredential,k=document.querySelector("[data-accepted]");let last
if(k)P?.signalAllAcceptedCredentials?.(JSON.parse(k.dataset.accepted)).catch(()=>0)
async function ask(mediation){
last?.abort();const mine=last=new AbortController
try{const o=JSON.parse(f.dataset.ask),n=o.user,c=navigator.credentials,a={mediation,signal:mine.signal}
a.publicKey=n?P.parseCreationOptionsFromJSON(o):P.parseRequestOptionsFromJSON(o)
f.elements.answer.value=JSON.stringify(await(n?c.create(a):c.get(a)))
f.submit()}catch{if(mine==last&&!mediation){f.querySelector("[role]").hidden=false;early()}}}
async function early(){const was=last
if(f.dataset.early&&await P.isConditionalMediationAvailable?.()&&was==last)ask("conditional")}
if(f&&P?.parseRequestOptionsFromJSON){f.hidden=false;f.onsubmit=e=>{e.preventDefault();ask()};early()}
