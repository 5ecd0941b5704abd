// A stranger's tool: logs, proofs and notes as Go's checksum database knows them. Everything that is decided here is decided
// by golang.org/x/mod/sumdb; this program only reads files.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	verbs := map[string]func(args []string){
		"roots": roots, "proofs": proofs, "include": include, "extend": extend, "fsck": fsck, "sign": sign, "open": open,
	}
	verbs[os.Args[1]](os.Args[2:])
}

func check(err error) {
	if err != nil {
		fmt.Println("REFUSED:", err)
		os.Exit(1)
	}
}

// The hashes of a log in memory, whose records are the lines of stdin, in hex.
func grown(each func(size int64, reader tlog.HashReader)) {
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var found []tlog.Hash
		for _, at := range indexes {
			found = append(found, stored[at])
		}
		return found, nil
	})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for size := int64(0); lines.Scan(); size++ {
		record, err := hex.DecodeString(lines.Text())
		check(err)
		more, err := tlog.StoredHashes(size, record, reader)
		check(err)
		stored = append(stored, more...)
		if each != nil {
			each(size+1, reader)
		}
	}
	if each == nil {
		last = reader
	}
}

var last tlog.HashReader

// The root of each size.
func roots([]string) {
	grown(func(size int64, reader tlog.HashReader) {
		root, err := tlog.TreeHash(size, reader)
		check(err)
		fmt.Println(hex.EncodeToString(root[:]))
	})
}

// The proofs of a size: of each record, and of each smaller tree.
func proofs(args []string) {
	grown(nil)
	size := number(args[0])
	for index := int64(0); index < size; index++ {
		proof, err := tlog.ProveRecord(size, index, last)
		check(err)
		fmt.Println("record", index, joined(proof))
	}
	for earlier := int64(1); earlier <= size; earlier++ {
		proof, err := tlog.ProveTree(size, earlier, last)
		check(err)
		fmt.Println("tree", earlier, joined(tlog.RecordProof(proof)))
	}
}

func joined(proof tlog.RecordProof) string {
	var words []string
	for _, hash := range proof {
		words = append(words, hex.EncodeToString(hash[:]))
	}
	return strings.Join(words, " ")
}

// VKEY ENTRY, a C2SP tlog-proof on stdin: whether the entry, in hex, is in the tree that the key has signed.
func include(args []string) {
	text, err := io.ReadAll(os.Stdin)
	check(err)
	head, signed, _ := strings.Cut(string(text), "\n\n")
	lines := strings.Split(head, "\n")
	if lines[0] != "c2sp.org/tlog-proof@v1" {
		check(fmt.Errorf("no tlog-proof"))
	}
	lines = lines[1:]
	if strings.HasPrefix(lines[0], "extra ") {
		lines = lines[1:]
	}
	index := number(strings.TrimPrefix(lines[0], "index "))
	size, root := checkpoint(args[0], signed)
	entry, err := hex.DecodeString(args[1])
	check(err)
	check(tlog.CheckRecord(hashes(lines[1:]), size, root, index, tlog.RecordHash(entry)))
	fmt.Println("GOOD", index, size)
}

// VKEY EARLIER LATER, a proof on stdin: whether one checkpoint goes on from the other.
func extend(args []string) {
	text, err := io.ReadAll(os.Stdin)
	check(err)
	before, err := os.ReadFile(args[1])
	check(err)
	after, err := os.ReadFile(args[2])
	check(err)
	earlier, old := checkpoint(args[0], string(before))
	later, root := checkpoint(args[0], string(after))
	check(tlog.CheckTree(tlog.TreeProof(hashes(strings.Fields(string(text)))), later, root, earlier, old))
	fmt.Println("GOOD", earlier, later)
}

// VKEY DIR: whether tiles and entries are those of the checkpoint.
func fsck(args []string) {
	signed, err := os.ReadFile(filepath.Join(args[1], "checkpoint"))
	check(err)
	size, root := checkpoint(args[0], string(signed))
	tree := tlog.Tree{N: size, Hash: root}
	reader := tlog.TileHashReader(tree, tiles(args[1]))
	var indexes []int64
	for at := int64(0); at < size; at++ {
		indexes = append(indexes, tlog.StoredHashIndex(0, at))
	}
	known, err := reader.ReadHashes(indexes) // it proves each of them
	check(err)
	at := int64(0)
	for n := int64(0); at < size; n++ {
		width := min(size-n*256, 256)
		bundle, err := os.ReadFile(filepath.Join(args[1], path("entries", n, int(width))))
		check(err)
		for ; len(bundle) > 0; at++ {
			length := int(binary.BigEndian.Uint16(bundle))
			if tlog.RecordHash(bundle[2:2+length]) != known[at] {
				check(fmt.Errorf("entry %d is not in the tree", at))
			}
			bundle = bundle[2+length:]
		}
	}
	fmt.Println("GOOD", at)
}

type tiles string

func (tiles) Height() int                                { return 8 }
func (tiles) SaveTiles(tiles []tlog.Tile, data [][]byte) {}
func (folder tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range wanted {
		data, err := os.ReadFile(filepath.Join(string(folder), path(strconv.Itoa(tile.L), tile.N, tile.W)))
		if err != nil {
			return nil, err
		}
		found = append(found, data)
	}
	return found, nil
}

// As C2SP's tlog-tiles names them.
func path(level string, n int64, width int) string {
	text := fmt.Sprintf("%03d", n%1000)
	for n /= 1000; n > 0; n /= 1000 {
		text = fmt.Sprintf("x%03d/%s", n%1000, text)
	}
	if width < 256 {
		text += fmt.Sprintf(".p/%d", width)
	}
	return "tile/" + level + "/" + text
}

// NAME: a new key signs what is on stdin.
func sign(args []string) {
	text, err := io.ReadAll(os.Stdin)
	check(err)
	secret, public, err := note.GenerateKey(rand.Reader, args[0])
	check(err)
	signer, err := note.NewSigner(secret)
	check(err)
	signed, err := note.Sign(&note.Note{Text: string(text)}, signer)
	check(err)
	fmt.Println(public)
	fmt.Print(string(signed))
}

// VKEY: the text of the note on stdin.
func open(args []string) {
	signed, err := io.ReadAll(os.Stdin)
	check(err)
	fmt.Print(opened(args[0], string(signed)))
}

func opened(vkey, signed string) string {
	verifier, err := note.NewVerifier(vkey)
	check(err)
	found, err := note.Open([]byte(signed), note.VerifierList(verifier))
	check(err)
	return found.Text
}

func checkpoint(vkey, signed string) (int64, tlog.Hash) {
	lines := strings.Split(opened(vkey, signed), "\n")
	return number(lines[1]), hash(lines[2])
}

func hash(text string) tlog.Hash {
	found, err := tlog.ParseHash(text)
	check(err)
	return found
}

func hashes(lines []string) tlog.RecordProof {
	var found tlog.RecordProof
	for _, line := range lines {
		if _, err := base64.StdEncoding.DecodeString(line); err == nil && line != "" {
			found = append(found, hash(line))
		}
	}
	return found
}

func number(text string) int64 {
	found, err := strconv.ParseInt(text, 10, 64)
	check(err)
	return found
}
