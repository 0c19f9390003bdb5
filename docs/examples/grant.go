package main

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os/exec"
	"time"
)

type Wallet struct{ Address string }

var sandbox struct {
	BaseURL string `json:"base_url"`
	Wallets map[string]Wallet
	Client  struct {
		WalletAddress string `json:"wallet_address"`
		Kid           string
		PrivateKey    string `json:"private_key"`
	}
}

func post(url string, body any) (*http.Response, error) {
	block, _ := pem.Decode([]byte(sandbox.Client.PrivateKey))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	content, _ := json.Marshal(body)
	hash := sha256.Sum256(content)
	digest := "sha-256=:" + base64.StdEncoding.EncodeToString(hash[:]) + ":"
	input := fmt.Sprintf(`("@method" "@target-uri" "content-digest");created=%d;keyid="%s"`, time.Now().Unix(), sandbox.Client.Kid)
	base := fmt.Sprintf("\"@method\": POST\n\"@target-uri\": %s\n\"content-digest\": %s\n\"@signature-params\": %s", url, digest, input)
	signature, _ := key.(ed25519.PrivateKey).Sign(nil, []byte(base), crypto.Hash(0))
	request, _ := http.NewRequest("POST", url, bytes.NewReader(content))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Content-Digest", digest)
	request.Header.Set("Signature-Input", "sig="+input)
	request.Header.Set("Signature", "sig=:"+base64.StdEncoding.EncodeToString(signature)+":")
	return http.DefaultClient.Do(request)
}

func main() {
	command := exec.Command("payres", "sandbox")
	input, _ := command.StdinPipe()
	output, _ := command.StdoutPipe()
	if err := command.Start(); err != nil {
		panic(err)
	}
	defer command.Wait()
	defer input.Close()
	json.NewDecoder(output).Decode(&sandbox)

	access := map[string]any{"type": "incoming-payment", "actions": []string{"create"}, "identifier": sandbox.Wallets["bob"].Address}
	answer, err := post(sandbox.BaseURL+"/", map[string]any{
		"access_token": map[string]any{"access": []any{access}}, "client": sandbox.Client.WalletAddress,
	})
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	fmt.Println("Granted:", answer.Status)
}
