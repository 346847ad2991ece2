#!/bin/sh
# test_inspect.sh BUILD: `weft inspect` over the models that come with weft, and over folders that are none.
weft=${1:?usage: tests/test_inspect.sh BUILD}/weft
[ -x "$weft" ] || { echo "no $weft" && echo '0 passed, 1 failed' && exit 1; }
passed=0 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# check NAME CODE PATTERN ARGS..: the pattern is looked for in all that is printed, with its spaces made one.
check() {
    name=$1 code=$2 want=$3
    shift 3
    "$weft" inspect "$@" >"$folder/out" 2>&1 </dev/null
    got=$?
    tr -s ' \n' ' ' <"$folder/out" >"$folder/line"
    if [ $got = "$code" ] && grep -q -e "$want" "$folder/line"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name: exit $got, expected $code and '$want'"
        head -n 30 "$folder/out"
    fi
}

golden=tests/data/golden
check 'dense: layers' 0 'family qwen3_5_text: 8 layers: 6 Gated DeltaNet, 2 attention' $golden/qwen3_5-dense
check 'dense: parameters' 0 'parameters 458,064 in the trunk output head a matrix of its own' $golden/qwen3_5-dense
check 'dense: drafter' 0 'MTP head 72,064 parameters; norms zero-centred, as published' $golden/qwen3_5-dense
check 'dense: weights' 0 'embedding 41.0 kB BF16 output head 41.0 kB BF16 attention' $golden/qwen3_5-dense
check 'dense: verdict' 0 'verdict fits: ' $golden/qwen3_5-dense
check 'tied' 0 'output head the embedding' $golden/qwen3_5-dense-tied
check 'experts' 0 'family qwen3_5_moe_text: .* experts 2 of 8, 48 wide, and a shared one, 48 wide' $golden/qwen3_5-moe
check 'experts: parameters' 0 'parameters 460,744 in the trunk, 239,560 of them used by a token' $golden/qwen3_5-moe
check 'a file in the folder' 0 'family qwen3_5_text:' $golden/qwen3_5-dense/config.json
check 'JSON' 0 '^{ "model": ".*", "family": "qwen3_5_moe_text", .*"parameters": 460744, .*"fits": true, .*}' --json $golden/qwen3_5-moe
check 'JSON: memory' 0 '"memory": \[ { "context": 1000, "total": [0-9]*, "weights": [0-9]*, "kv": ' --json --context 1000 $golden/qwen3_5-moe
check 'the bundled model' 0 'bits in groups of 64, scales in BF16' models/mini
check 'a context beyond the trained one' 0 'enough for 20,000 tokens.* warning trained for 8,192 tokens: a context of 20,000 ' --context 20000 models/mini
check 'JSON: a context beyond the trained one' 0 '"fits": true, "largest_context": 20000 }' --json --context 20000 models/mini
# 34.4 GB of keys and values: whether that fits depends on the machine.
available=$("$weft" inspect --json models/mini | sed -n 's/.*"available": \([0-9]*\).*/\1/p')
if [ "$available" -lt 34360000000 ]; then verdict='does not fit'; else verdict=fits; fi
check 'too large' 0 "verdict $verdict: this machine has " --kv f32 --context 4194304 models/mini
check 'keys and values of 8 bits' 0 '4194304 8.9 GB 26.5 MB 8.9 GB 4.0 MB' --kv int8 --context 4194304 models/mini
check 'packed weights: too few' 0 'packed at every start: so small a model' models/mini
check 'packed weights: JSON' 0 '"packed": null, "memory"' --json --cache "$folder/cache" models/mini
check 'no such folder' 1 '^weft: .*there is no such file or folder' "$folder/none"
check 'no model folder' 1 '^weft: .* is not a model folder: no config.json in it' "$folder"
check 'no model named' 2 '^weft: ' --json

# A tensor of another shape than the config says is found without loading anything.
cp $golden/qwen3_5-dense/* "$folder"
chmod u+w "$folder"/*
sed 's/"intermediate_size": 160/"intermediate_size": 128/' $golden/qwen3_5-dense/config.json >"$folder/config.json"
check 'config against tensors' 1 "tensor 'model.layers.0.mlp.gate_proj.weight' is BF16 \[160, 64\]; expected \[128, 64\]" "$folder"
cp $golden/qwen3_5-dense/config.json "$folder/config.json"
head -c 100000 $golden/qwen3_5-dense/model.safetensors >"$folder/model.safetensors"
check 'a file cut short' 1 'was the file downloaded to its end?' "$folder"
sed 's/"model_type": "[^"]*"/"model_type": "gpt2"/' $golden/qwen3_5-dense/config.json >"$folder/config.json"
check 'another family' 1 "model_type 'gpt2' is not supported; this version knows Llama, Mistral, Qwen2," "$folder"
cp $golden/qwen3_5-dense/model.safetensors "$folder/model.safetensors"
cp tests/fuzz/corpus/config/tiny-gemma4-assistant.json "$folder/config.json"
check 'a drafter' 1 'is a drafter for a Gemma 4 model, not a model by itself: give it with --draft' "$folder"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
