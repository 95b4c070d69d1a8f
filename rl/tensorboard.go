package rl

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"
)

// TensorBoard reads files of TFRecords, each a serialized tensorflow.Event message:
//
//	length, uint64 · masked CRC-32C of the length, uint32 · data · masked CRC-32C of the data, uint32
//
// Event: wall_time = 1 (double), step = 2 (int64), file_version = 3 (string), summary = 5.
// Summary: value = 1. Value: tag = 1 (string), simple_value = 2 (float).

func appendTFRecord(dst, data []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(data)))
	dst = binary.LittleEndian.AppendUint32(dst, maskedCRC(dst[at:at+8]))
	dst = append(dst, data...)
	return binary.LittleEndian.AppendUint32(dst, maskedCRC(data))
}

// maskedCRC is TFRecord's checksum: a CRC of data that holds CRCs is weak, so they are rotated.
func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli())
	return (c>>15 | c<<17) + 0xa282ead8
}

func versionEvent(now time.Time) []byte {
	return appendBytes(appendWallTime(nil, now), 3, []byte("brain.Event:2"))
}

// scalarsEvent holds all figures of a step. Values that are not finite are left out: TensorBoard
// draws no point for them either.
func scalarsEvent(s StepLog) []byte {
	e := appendWallTime(nil, s.Time)
	e = binary.AppendUvarint(append(e, 2<<3), uint64(s.Step))
	var summary []byte
	for _, name := range s.Stats.Names {
		v := s.Stats.Values[name]
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		value := appendBytes(nil, 1, []byte(name))
		value = binary.LittleEndian.AppendUint32(append(value, 2<<3|5), math.Float32bits(float32(v)))
		summary = appendBytes(summary, 1, value)
	}
	return appendBytes(e, 5, summary)
}

func appendWallTime(dst []byte, t time.Time) []byte {
	seconds := float64(t.UnixNano()) / 1e9
	return binary.LittleEndian.AppendUint64(append(dst, 1<<3|1), math.Float64bits(seconds))
}

func appendBytes(dst []byte, field int, b []byte) []byte {
	dst = binary.AppendUvarint(append(dst, byte(field<<3|2)), uint64(len(b)))
	return append(dst, b...)
}
