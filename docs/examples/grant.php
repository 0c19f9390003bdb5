<?php
$process = proc_open(['payres', 'sandbox'], [['pipe', 'r'], ['pipe', 'w'], STDERR], $pipes);
$sandbox = json_decode(fgets($pipes[1]));
$der = base64_decode(preg_replace('/-----[^-]+-----|\s/', '', $sandbox->client->private_key));
$key = sodium_crypto_sign_secretkey(sodium_crypto_sign_seed_keypair(substr($der, -32)));

function post(string $url, array $body): object {
    global $sandbox, $key;
    $json = json_encode($body, JSON_UNESCAPED_SLASHES);
    $digest = 'sha-256=:' . base64_encode(hash('sha256', $json, true)) . ':';
    $input = '("@method" "@target-uri" "content-digest");created=' . time() . ';keyid="' . $sandbox->client->kid . '"';
    $base = "\"@method\": POST\n\"@target-uri\": $url\n\"content-digest\": $digest\n\"@signature-params\": $input";
    $signature = base64_encode(sodium_crypto_sign_detached($base, $key));
    $headers = ['Content-Type: application/json', "Content-Digest: $digest", "Signature-Input: sig=$input", "Signature: sig=:$signature:"];
    $options = ['method' => 'POST', 'header' => $headers, 'content' => $json, 'ignore_errors' => true];
    return json_decode(file_get_contents($url, false, stream_context_create(['http' => $options])));
}

$access = ['type' => 'incoming-payment', 'actions' => ['create'], 'identifier' => $sandbox->wallets->bob->address];
$grant = post("$sandbox->base_url/", ['access_token' => ['access' => [$access]], 'client' => $sandbox->client->wallet_address]);
echo 'Granted: ', $grant->access_token->access[0]->type, "\n";
fclose($pipes[0]);
proc_close($process);
