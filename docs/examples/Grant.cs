using System.Diagnostics;
using System.Security.Cryptography;
using System.Text;
using System.Text.Json;
using System.Text.Json.Nodes;
using NSec.Cryptography;

var start = new ProcessStartInfo("payres", "sandbox") { RedirectStandardInput = true, RedirectStandardOutput = true };
using var process = Process.Start(start)!;
var sandbox = JsonNode.Parse(process.StandardOutput.ReadLine()!)!;
var client = sandbox["client"]!;
var pem = Encoding.ASCII.GetBytes((string)client["private_key"]!);
using var key = Key.Import(SignatureAlgorithm.Ed25519, pem, KeyBlobFormat.PkixPrivateKeyText);

var url = (string)sandbox["base_url"]! + "/";
var access = new { type = "incoming-payment", actions = new[] { "create" }, identifier = (string)sandbox["wallets"]!["bob"]!["address"]! };
var body = JsonSerializer.SerializeToUtf8Bytes(
    new { access_token = new { access = new[] { access } }, client = (string)client["wallet_address"]! });
var digest = $"sha-256=:{Convert.ToBase64String(SHA256.HashData(body))}:";
var created = DateTimeOffset.UtcNow.ToUnixTimeSeconds();
var input = $"(\"@method\" \"@target-uri\" \"content-digest\");created={created};keyid=\"{client["kid"]}\"";
var signed = $"\"@method\": POST\n\"@target-uri\": {url}\n\"content-digest\": {digest}\n\"@signature-params\": {input}";
var signature = Convert.ToBase64String(SignatureAlgorithm.Ed25519.Sign(key, Encoding.ASCII.GetBytes(signed)));

var request = new HttpRequestMessage(HttpMethod.Post, url) { Content = new ByteArrayContent(body) };
request.Content.Headers.ContentType = new("application/json");
request.Headers.Add("Content-Digest", digest);
request.Headers.Add("Signature-Input", $"sig={input}");
request.Headers.Add("Signature", $"sig=:{signature}:");
var answer = await new HttpClient().SendAsync(request);
Console.WriteLine($"Granted: {answer.StatusCode}");
process.StandardInput.Close();
process.WaitForExit();
